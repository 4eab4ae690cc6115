package mesh

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
)

// call sends a request from a client address, and reads the answer.
func (w *world) call(h http.Handler, method, path, bearer, body string) *httptest.ResponseRecorder {
	w.Helper()
	req := httptest.NewRequestWithContext(w.Context(), method, path, strings.NewReader(body))
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// refused checks that an answer is a Status with this code and reason.
func refused(t testing.TB, what string, rec *httptest.ResponseRecorder, code int, reason string) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(rec.Body.Bytes(), &status); err != nil {
		t.Errorf("%s: %d %s", what, rec.Code, rec.Body)
		return
	}
	if rec.Code != code || status.Code != int32(code) || string(status.Reason) != reason || status.Message == "" || status.Kind != "Status" {
		t.Errorf("%s: %d %s; want %d %s", what, rec.Code, rec.Body, code, reason)
	}
}

func TestNodeHandler(t *testing.T) {
	each(t, func(w *world) {
		h := w.mesh.NodeHandler()
		get := func(rec *httptest.ResponseRecorder, into any) {
			t.Helper()
			if rec.Code != http.StatusOK || json.Unmarshal(rec.Body.Bytes(), into) != nil {
				t.Fatalf("%d %s", rec.Code, rec.Body)
			}
		}
		r := request(w.mint().Text, "alpha")
		var who v1alpha1.EnrolAnswer
		get(w.call(h, "POST", v1alpha1.EnrolPath, "", jsonOf(t, r)), &who)
		bearer := v1alpha1.Credential(who.UID, r.Secret)
		other := w.enrol("beta")

		var beat v1alpha1.Heartbeat
		get(w.call(h, "POST", v1alpha1.HeartbeatPath, bearer, ""), &beat)
		var peers v1alpha1.Peers
		get(w.call(h, "GET", v1alpha1.PeersPath, bearer, ""), &peers)
		if len(peers.Peers) != 1 || peers.Peers[0].UID != other.UID || !peers.Changed {
			t.Errorf("peers: %+v", peers)
		}
		refused(t, "drained unasked", w.call(h, "POST", v1alpha1.DrainedPath, bearer, ""), 409, v1alpha1.ReasonNotDraining)
		get(w.call(h, "POST", v1alpha1.LeavePath, bearer, ""), &struct{}{})
		get(w.call(h, "POST", v1alpha1.HeartbeatPath, bearer, ""), &beat)
		if !beat.Self.Draining {
			t.Errorf("heartbeat after leave: %+v", beat)
		}
		get(w.call(h, "POST", v1alpha1.DrainedPath, bearer, ""), &struct{}{})
		refused(t, "heartbeat after it left", w.call(h, "POST", v1alpha1.HeartbeatPath, bearer, ""), 401, v1alpha1.ReasonUnknownNode)
		if !w.registered(other.token) {
			t.Error("the other node is gone too")
		}
	})
}

// TestNodeHandlerRefuses: each kind of bad input has an answer of its own.
func TestNodeHandlerRefuses(t *testing.T) {
	each(t, func(w *world) {
		n, spent := w.enrol("alpha"), w.enrol("beta")
		good := jsonOf(t, request(w.mint().Text, "new"))
		for _, c := range []struct {
			name, method, path, bearer, body string
			code                             int
			reason                           string
		}{
			{"no body", "POST", v1alpha1.EnrolPath, "", "", 400, reasonInvalid},
			{"no JSON", "POST", v1alpha1.EnrolPath, "", "{", 400, reasonInvalid},
			{"a list", "POST", v1alpha1.EnrolPath, "", "[]", 400, reasonInvalid},
			{"wrong type", "POST", v1alpha1.EnrolPath, "", `{"name":7}`, 400, reasonInvalid},
			{"unknown field", "POST", v1alpha1.EnrolPath, "", `{"nam":"x"}`, 400, reasonInvalid},
			{"two values", "POST", v1alpha1.EnrolPath, "", good + good, 400, reasonInvalid},
			{"a body too large", "POST", v1alpha1.EnrolPath, "", `{"name":"` + strings.Repeat("x", maxRequest) + `"}`, 413, reasonTooLarge},
			{"wrong method", "GET", v1alpha1.EnrolPath, "", "", 405, reasonMethod},
			{"consumed", "POST", v1alpha1.EnrolPath, "", jsonOf(t, request(spent.token.Text, "new")), 403, v1alpha1.ReasonTokenConsumed},
			{"name taken", "POST", v1alpha1.EnrolPath, "", jsonOf(t, request(w.mint().Text, "alpha")), 409, v1alpha1.ReasonNameTaken},
			{"a bootstrap token as credential", "POST", v1alpha1.HeartbeatPath, w.mint().Text, "", 401, v1alpha1.ReasonUnknownNode},
			{"no credential", "POST", v1alpha1.HeartbeatPath, "", "", 401, v1alpha1.ReasonUnknownNode},
			{"no such node", "POST", v1alpha1.HeartbeatPath, v1alpha1.Credential("00000000-0000-4000-8000-000000000000", newSecret()), "", 401, v1alpha1.ReasonUnknownNode},
			{"wrong secret", "POST", v1alpha1.HeartbeatPath, v1alpha1.Credential(n.UID, newSecret()), "", 401, v1alpha1.ReasonUnknownNode},
			{"another node's secret", "POST", v1alpha1.HeartbeatPath, strings.Replace(spent.credential, spent.UID, n.UID, 1), "", 401, v1alpha1.ReasonUnknownNode},
			{"wrong credential for leave", "POST", v1alpha1.LeavePath, v1alpha1.Credential(n.UID, newSecret()), "", 401, v1alpha1.ReasonUnknownNode},
			{"GET of a verb", "GET", v1alpha1.LeavePath, n.credential, "", 405, reasonMethod},
			{"bad since", "GET", v1alpha1.PeersPath + "?since=x", n.credential, "", 400, reasonInvalid},
			{"negative since", "GET", v1alpha1.PeersPath + "?since=-1", n.credential, "", 400, reasonInvalid},
			{"bad wait", "GET", v1alpha1.PeersPath + "?wait=long", n.credential, "", 400, reasonInvalid},
			{"negative wait", "GET", v1alpha1.PeersPath + "?wait=-1s", n.credential, "", 400, reasonInvalid},
			{"nothing there", "GET", v1alpha1.NodePath + "x", n.credential, "", 404, reasonNotFound},
		} {
			refused(t, c.name, w.call(w.mesh.NodeHandler(), c.method, c.path, c.bearer, c.body), c.code, c.reason)
		}
		w.check()
	})
}

// TestEnrolRate: the enrolments of one address are limited, and those of others are
// not affected.
func TestEnrolRate(t *testing.T) {
	each(t, func(w *world) {
		h := w.mesh.NodeHandler()
		codes := map[int]int{}
		for range enrolBurst + 30 {
			codes[w.call(h, "POST", v1alpha1.EnrolPath, "", "{}").Code]++
		}
		if codes[400] < enrolBurst || codes[429] == 0 {
			t.Errorf("answers: %v", codes)
		}
		req := httptest.NewRequestWithContext(t.Context(), "POST", v1alpha1.EnrolPath, strings.NewReader("{}"))
		req.RemoteAddr = "198.51.100.7:1234"
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		if rec.Code != 400 {
			t.Errorf("another address: %d %s", rec.Code, rec.Body)
		}
	})
}

func TestTokenHandler(t *testing.T) {
	each(t, func(w *world) {
		h := w.mesh.TokenHandler()
		var made v1alpha1.Token
		rec := w.call(h, "POST", v1alpha1.TokensPath, "", `{"project":"shop","ttlSeconds":600}`)
		if err := json.Unmarshal(rec.Body.Bytes(), &made); err != nil || made.Text == "" || made.State != StateIssued || rec.Header().Get("Cache-Control") != "no-store" {
			t.Fatalf("mint: %d %s", rec.Code, rec.Body)
		}
		for _, project := range []string{"", "?project=shop", "?project=bank"} {
			rec = w.call(h, "GET", v1alpha1.TokensPath+project, "", "")
			if rec.Code != 200 || strings.Contains(rec.Body.String(), made.ID) != (project != "?project=bank") || strings.Contains(rec.Body.String(), made.Text) {
				t.Errorf("list %q: %d %s", project, rec.Code, rec.Body)
			}
		}
		for range 2 {
			rec = w.call(h, "DELETE", v1alpha1.TokensPath+"/"+made.ID, "", "")
			if rec.Code != 200 || !strings.Contains(rec.Body.String(), `"state":"revoked"`) {
				t.Errorf("revoke: %d %s", rec.Code, rec.Body)
			}
		}
		refused(t, "revoke nothing", w.call(h, "DELETE", v1alpha1.TokensPath+"/x", "", ""), 404, reasonNotFound)
		for _, c := range []struct {
			body   string
			code   int
			reason string
		}{
			{`{"project":"shop","ttlSeconds":299}`, 400, reasonInvalid},
			{`{"project":"shop","ttlSeconds":86401}`, 400, reasonInvalid},
			{`{"project":"shop","ttlSeconds":9223372036854775807}`, 400, reasonInvalid},
			{`{"project":"shop","ttlSeconds":-9223372036854775808}`, 400, reasonInvalid},
			{`{"project":"shop"}`, 400, reasonInvalid},
			{`{"ttlSeconds":600}`, 400, reasonInvalid},
			{`{"project":"nowhere","ttlSeconds":600}`, 403, v1alpha1.ReasonProjectGone},
			{`{"project":"shop","ttlSeconds":600,"text":"mine"}`, 400, reasonInvalid},
		} {
			refused(t, c.body, w.call(h, "POST", v1alpha1.TokensPath, "", c.body), c.code, c.reason)
		}
	})
}

// TestPeersWait: a poll returns when a peer changes on any replica, and without a
// change at its timeout or when the server stops.
func TestPeersWait(t *testing.T) {
	each(t, func(w *world) {
		n := w.enrol("alpha")
		other := w.replica()
		now, err := w.mesh.Peers(t.Context(), n.Node, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		type result struct {
			peers v1alpha1.Peers
			err   error
		}
		poll := func(since int64, wait time.Duration) chan result {
			out := make(chan result, 1)
			go func() {
				p, err := w.mesh.Peers(t.Context(), n.Node, since, wait)
				out <- result{p, err}
			}()
			return out
		}
		waiting := poll(now.Revision, MaxWait)
		token := w.mint()
		if _, err := other.Enrol(t.Context(), request(token.Text, "beta")); err != nil {
			t.Fatal(err)
		}
		r := <-waiting
		if r.err != nil || !r.peers.Changed || len(r.peers.Peers) != 1 || r.peers.Revision <= now.Revision {
			t.Errorf("after an enrolment elsewhere: %+v, %v", r.peers, r.err)
		}
		w.createNamespace("other") // moves the revision and changes no peer
		quiet := <-poll(r.peers.Revision, time.Millisecond)
		if quiet.err != nil || quiet.peers.Changed || quiet.peers.Revision < r.peers.Revision {
			t.Errorf("nothing happened: %+v, %v", quiet.peers, quiet.err)
		}
		waiting = poll(r.peers.Revision, MaxWait)
		w.mesh.close()
		if stopped := <-waiting; stopped.err != nil || stopped.peers.Changed {
			t.Errorf("the server stops: %+v, %v", stopped.peers, stopped.err)
		}
		// A revision that the server no longer has is answered with the whole list.
		if again := <-poll(1, MaxWait); again.err != nil || !again.peers.Changed {
			t.Errorf("from the beginning: %+v, %v", again.peers, again.err)
		}
	})
}

// TestHash: a secret matches its own hash only, and that of an earlier version.
func TestHash(t *testing.T) {
	const argon2 = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$PPODTVCuoeuIqcbQe/8XacwA2tAswbWsqoT8N/ntNrI"
	for _, stored := range []string{hashOf("secret"), argon2} {
		for secret, want := range map[string]bool{"secret": true, "Secret": false, "": false} {
			if got := hashMatches(stored, secret); got != want {
				t.Errorf("%s, %q: %t", stored, secret, got)
			}
		}
	}
	for _, bad := range []string{"", "x", "$argon2id$", strings.Replace(argon2, "AA", "!A", 1), argon2[:len(argon2)-30], argon2 + "$"} {
		if hashMatches(bad, "secret") || hashMatches(bad, "") {
			t.Errorf("%s matches", bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	id, secret := newToken()
	f.Add(tokenText(id, secret))
	f.Add(v1alpha1.Credential("00000000-0000-4000-8000-000000000000", newSecret()))
	f.Add("exb__")
	f.Add("exn_" + strings.Repeat("_", 50))
	f.Fuzz(func(t *testing.T, text string) {
		if id, secret, ok := parseToken(text); ok && tokenText(id, secret) != text {
			t.Errorf("token %q is read as %q, %q", text, id, secret)
		}
		if uid, secret, ok := parseCredential(text); ok && v1alpha1.Credential(uid, secret) != text {
			t.Errorf("credential %q is read as %q, %q", text, uid, secret)
		}
	})
}
