package mesh

import (
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

func TestEnrol(t *testing.T) {
	each(t, func(w *world) {
		n := w.enrol("alpha")
		if n.Project != "shop" || n.Name != "alpha" || w.state(n.token) != StateConsumed || !w.registered(n.token) {
			t.Errorf("enrolled as %+v, token %s", n.Node, w.state(n.token))
		}
		o := w.object("alpha")
		if o == nil || string(o.UID) != n.UID || o.Status.Phase != v1alpha1.PhaseReady || o.Spec.TokenID != n.token.ID ||
			o.Spec.Address != "192.0.2.1:65535" || o.Spec.DrainTimeoutSeconds != 30 {
			t.Errorf("object: %+v", o)
		}
		if shown := w.shown(n.token); shown.Node != "alpha" || shown.Text != "" || shown.CreatedBy != "jo" || shown.EndedAt == nil {
			t.Errorf("token: %+v", shown)
		}
		got, err := w.mesh.Authenticate(t.Context(), n.credential)
		if err != nil || got != n.Node {
			t.Errorf("authenticate: %+v, %v", got, err)
		}
		w.check()
	})
}

// TestDenials: each refusal has its reason, consumes no token and writes nothing.
func TestDenials(t *testing.T) {
	each(t, func(w *world) {
		spent, fresh := w.enrol("spent"), w.mint()
		revoked := w.mint()
		if _, err := w.mesh.Revoke(t.Context(), revoked.ID); err != nil {
			t.Fatal(err)
		}
		used := request(w.mint().Text, "used")
		if _, err := w.mesh.Enrol(t.Context(), used); err != nil {
			t.Fatal(err)
		}
		wrong := strings.Replace(fresh.Text, fresh.Text[len(fresh.Text)-4:], "AAAA", 1)
		for _, c := range []struct {
			name   string
			token  string
			change func(r *v1alpha1.EnrolRequest)
			want   string
		}{
			{"consumed", spent.token.Text, nil, v1alpha1.ReasonTokenConsumed},
			{"revoked", revoked.Text, nil, v1alpha1.ReasonTokenRevoked},
			{"wrong project", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Project = "bank" }, v1alpha1.ReasonWrongProject},
			{"nonce of another token's enrolment", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Nonce = used.Nonce }, v1alpha1.ReasonNonceReplayed},
			{"replay with another secret", used.Token, func(r *v1alpha1.EnrolRequest) { r.Nonce = used.Nonce }, v1alpha1.ReasonNonceReplayed},
			{"name taken", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Name = "spent" }, v1alpha1.ReasonNameTaken},
			{"unknown id", tokenText("aaaaaaaaaaaaaaaa", strings.Repeat("A", 26)), nil, v1alpha1.ReasonUnknownToken},
			{"wrong secret", wrong, nil, v1alpha1.ReasonUnknownToken},
			{"wrong secret of a consumed token", tokenText(spent.token.ID, strings.Repeat("B", 26)), nil, v1alpha1.ReasonUnknownToken},
			{"no token at all", "hello", nil, v1alpha1.ReasonUnknownToken},
			{"empty token", "", nil, v1alpha1.ReasonUnknownToken},
			{"long token", strings.Repeat("x", 100000), nil, v1alpha1.ReasonUnknownToken},
			{"short nonce", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Nonce = "x" }, reasonInvalid},
			{"weak secret", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Secret = "password" }, reasonInvalid},
			{"bad name", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Name = "A B" }, reasonInvalid},
			{"no name", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Name = "" }, reasonInvalid},
			{"name with a NUL", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Name = "a\x00b" }, reasonInvalid},
			{"bad project", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Project = "no/such" }, reasonInvalid},
			{"bad address", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Address = "here" }, reasonInvalid},
			{"address of everything", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Address = "0.0.0.0:70" }, reasonInvalid},
			{"port zero", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Address = "192.0.2.1:0" }, reasonInvalid},
			{"port too large", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.Address = "192.0.2.1:65536" }, reasonInvalid},
			{"endless drain", fresh.Text, func(r *v1alpha1.EnrolRequest) { r.DrainTimeoutSeconds = 3601 }, reasonInvalid},
		} {
			r := request(c.token, "new")
			if c.change != nil {
				c.change(&r)
			}
			_, err := w.mesh.Enrol(t.Context(), r)
			w.denied(c.name, err, c.want)
		}
		if got := w.state(fresh); got != StateIssued {
			t.Errorf("a refusal made the token %s", got)
		}
		if w.object("new") != nil {
			t.Error("a refusal made a node")
		}
		w.check()
		w.enrolBy(fresh, "new")
	})
}

// TestEnrolExpired: a token that was answered as expired stays expired, also for a
// replica whose clock is behind.
func TestEnrolExpired(t *testing.T) {
	each(t, func(w *world) {
		told, asked, late := w.mint(), w.mint(), w.mint()
		w.clock.Advance(time.Hour)
		_, err := w.mesh.Enrol(t.Context(), request(told.Text, "a"))
		w.denied("enrol after an hour", err, v1alpha1.ReasonTokenExpired)
		if got := w.state(asked); got != StateExpired {
			t.Errorf("state after an hour: %s", got)
		}
		w.clock.Advance(-time.Minute)
		for name, token := range map[string]v1alpha1.Token{"told": told, "asked": asked} {
			_, err := w.mesh.Enrol(t.Context(), request(token.Text, name))
			w.denied("enrol by a slow clock, "+name, err, v1alpha1.ReasonTokenExpired)
		}
		w.enrolBy(late, "late") // no answer has said yet that this one has expired
		w.check()
	})
}

// TestEnrolAgain: a repeated enrolment gets the same answer, but only with the nonce
// and the secret of the first.
func TestEnrolAgain(t *testing.T) {
	each(t, func(w *world) {
		r := request(w.mint().Text, "alpha")
		first, err := w.mesh.Enrol(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := w.mesh.Enrol(t.Context(), r)
		if err != nil || again != first {
			t.Errorf("again: %+v, %v; first %+v", again, err, first)
		}
		node := Node{first.UID, first.Project, first.Name}
		if err := w.mesh.Leave(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		if err := w.mesh.Drained(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		_, err = w.mesh.Enrol(t.Context(), r)
		w.denied("a recorded enrolment after the node left", err, v1alpha1.ReasonNonceReplayed)
		for _, name := range []string{"alpha", "beta"} {
			_, err = w.mesh.Enrol(t.Context(), request(r.Token, name))
			w.denied("a new enrolment, as "+name+", by the token of a node that left", err, v1alpha1.ReasonTokenConsumed)
			if w.object(name) != nil {
				t.Errorf("%s came in by a token that another node had used", name)
			}
		}
		w.check()
	})
}

// TestAdmitConsumed: admit refuses a second node for a consumed token, whether the
// first is registered or not. register would refuse too, with another reason.
func TestAdmitConsumed(t *testing.T) {
	t.Parallel()
	first, other := request("", "alpha"), request("", "beta")
	sameNonce := request("", "alpha")
	sameNonce.Nonce = first.Nonce
	registered := &node{name: "alpha", credential: digest(first.Secret)}
	for _, c := range []struct {
		name    string
		request v1alpha1.EnrolRequest
		node    *node
		want    decision
		reason  string
	}{
		{"the same request", first, registered, repeat, ""},
		{"the same request when the node has left", first, nil, refuse, v1alpha1.ReasonNonceReplayed},
		{"its nonce with another secret", sameNonce, registered, refuse, v1alpha1.ReasonNonceReplayed},
		{"a new nonce", other, registered, refuse, v1alpha1.ReasonTokenConsumed},
		{"a new nonce when the node has left", other, nil, refuse, v1alpha1.ReasonTokenConsumed},
	} {
		got, denial := admit(application{
			token:   token{id: "t", project: "shop", state: StateConsumed, nonce: first.Nonce, node: "alpha"},
			request: c.request, node: c.node, now: time.Now(),
		})
		reason := ""
		if denial != nil {
			reason = denial.Reason
		}
		if got != c.want || reason != c.reason {
			t.Errorf("%s: decision %d, %q; want %d, %q", c.name, got, reason, c.want, c.reason)
		}
	}
}

// TestEnrolProject: no node enrols in a namespace that is missing or Terminating,
// and tokens are removed with their namespace.
func TestEnrolProject(t *testing.T) {
	each(t, func(w *world) {
		_, err := w.mesh.Mint(t.Context(), Order{Project: "nowhere", TTL: time.Hour})
		w.denied("mint for no project", err, v1alpha1.ReasonProjectGone)
		token := w.mint()
		ns := object.Key{Kind: "namespaces", Name: "shop"}
		if _, err := w.store.Delete(t.Context(), store.DeleteRequest{Key: ns}); err != nil {
			t.Fatal(err)
		}
		// Without its rules a namespace goes at once; one of the same name is another.
		_, err = w.mesh.Enrol(t.Context(), request(token.Text, "a"))
		w.denied("enrol into a namespace that is gone", err, v1alpha1.ReasonUnknownToken)
		w.createNamespace("shop")
		_, err = w.mesh.Enrol(t.Context(), request(token.Text, "a"))
		w.denied("enrol into its successor", err, v1alpha1.ReasonUnknownToken)
		if got := w.state(token); got != "" {
			t.Errorf("the token of a namespace that is gone is %s", got)
		}
	})
}

func TestMintRefuses(t *testing.T) {
	each(t, func(w *world) {
		for _, c := range []struct {
			order Order
			want  string
		}{
			{Order{Project: "shop", TTL: MinTTL - time.Second}, reasonInvalid},
			{Order{Project: "shop", TTL: MaxTTL + time.Second}, reasonInvalid},
			{Order{Project: "", TTL: time.Hour}, reasonInvalid},
			{Order{Project: "Shop", TTL: time.Hour}, reasonInvalid},
			{Order{Project: "shop", TTL: MinTTL}, ""},
			{Order{Project: "shop", TTL: MaxTTL}, ""},
		} {
			_, err := w.mesh.Mint(t.Context(), c.order)
			w.denied(c.order.Project+" "+c.order.TTL.String(), err, c.want)
		}
		_, err := w.mesh.Revoke(t.Context(), "aaaaaaaaaaaaaaaa")
		w.denied("revoke what is not there", err, reasonNotFound)
	})
}

// TestPrune: a mint removes tokens that ended long ago, and keeps those that a
// client may still ask about.
func TestPrune(t *testing.T) {
	each(t, func(w *world) {
		unused, spent, gone := w.mint(), w.enrol("stays"), w.enrol("goes")
		old, last := w.mintFor("r"), w.mintFor("r")
		if err := w.mesh.Leave(t.Context(), gone.Node); err != nil {
			t.Fatal(err)
		}
		if err := w.mesh.Drained(t.Context(), gone.Node); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(keepTokens + 2*time.Hour)
		w.mint()
		for name, c := range map[string]struct {
			token v1alpha1.Token
			want  string
		}{
			"unused": {unused, ""}, "node registered": {spent.token, StateConsumed}, "node gone": {gone.token, ""},
			"superseded": {old, ""}, "last of its resource": {last, StateExpired},
		} {
			if got := w.state(c.token); got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
	})
}
