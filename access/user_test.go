package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/serviceaccount"
	"github.com/exeunt/exeunt/access/signing"
	v1 "github.com/exeunt/exeunt/access/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bearer is a request with a token.
func bearer(token string) *http.Request {
	req := httptest.NewRequest("GET", "/api", nil)
	req.Header.Set("Authorization", "Bearer "+token)
	return req
}

// TestUserIsOne: the tokens and certificates of a User, and what the registry remembers of it, end with the User, and
// are not those of a later one of its name. A certificate has the groups of its subject, a token those of the User.
func TestUserIsOne(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		st := storetest.Run(t, store.Options{DB: db})
		d := directory.New(st, slog.New(slog.DiscardHandler))
		id := open(t, t.TempDir(), hosts, time.Now())
		control := NewControl(d, Config{Authorities: id.ClientAuthorities})
		key := object.Key{Kind: "users.access.exeunt.dev", Name: "jane"}
		tomorrow := time.Now().Add(24 * time.Hour).Truncate(time.Second)
		put := func(uid, token string) {
			storetest.Create(t, st, storetest.Object(t, key, fmt.Sprintf(`,"spec":{"groups":["ops"],"tokens":[{"name":"a","sha256":%q},{"name":"b","sha256":%q,"expires":%q},{"name":"c","sha256":%q,"expires":%q}]}`,
				v1.Hash(token), v1.Hash("old"), time.Now().Add(-time.Minute).Format(time.RFC3339), v1.Hash("new"), tomorrow.Format(time.RFC3339)),
				func(m *metav1.ObjectMeta) { m.UID = types.UID(uid) }))
		}
		secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		text, err := id.SignClient(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Organization: []string{"dev"}}, PublicKey: &secret.PublicKey}, "first", time.Hour, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		connection := ConnContext(t.Context(), nil) // one connection for all requests
		byCertificate := func() (user.Info, bool) {
			req := httptest.NewRequest("GET", "/api", nil).WithContext(connection)
			req.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf, id.Authority}}}
			return control.Authenticate(req)
		}
		first := &user.DefaultInfo{Name: "jane", UID: "first", Groups: []string{"dev"}}
		var remembered user.Info = first
		for _, step := range []struct {
			what   string
			do     func()
			exists bool
		}{
			{"exists", func() { put("first", "one") }, true},
			{"was removed", func() {
				if _, err := st.Delete(t.Context(), store.DeleteRequest{Key: key}); err != nil {
					t.Fatal(err)
				}
			}, false},
			{"is another of the name", func() { put("second", "two") }, false},
		} {
			step.do()
			if err := d.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			if step.exists {
				remembered = control.Remember(first)
			}
			is := func(how string, found user.Info, ok bool, groups ...string) {
				t.Helper()
				if ok != step.exists || ok && (found.GetName() != "jane" || found.GetUID() != "first" || !slices.Equal(found.GetGroups(), groups)) {
					t.Errorf("jane %s; by %s: %v, %v", step.what, how, found, ok)
				}
			}
			for range 2 { // the connection remembers the certificate
				u, ok := byCertificate()
				is("certificate", u, ok, "dev", "system:authenticated")
			}
			u, ok := control.Reauthenticate(t.Context(), Credential{Chain: [][]byte{block.Bytes}})
			is("the certificate of a session", u, ok, "dev", "system:authenticated")
			u, ok = control.Authenticate(bearer("one"))
			is("token", u, ok, "ops", "system:authenticated")
			u, ok = control.Reauthenticate(t.Context(), Credential{Token: "one"})
			is("the token of a session", u, ok, "ops", "system:authenticated")
			u, ok = control.UserByCredential(v1.Hash("one"))
			is("the credential of a registry token", u, ok, "ops", "system:authenticated")
			u, ok = control.Current(remembered)
			is("memory", u, ok, "dev")
			if credential, ends := control.Credential("one"); (credential == v1.Hash("one")) != step.exists || !ends.IsZero() {
				t.Errorf("jane %s: the credential of her token is %q until %v", step.what, credential, ends)
			}
			csr := &certificatesv1.CertificateSigningRequest{}
			control.SetRequestor(first, csr)
			if uid := csr.Spec.Extra[signing.UserKey]; (len(uid) == 1 && uid[0] == "first") != step.exists || csr.Spec.UID != "first" || !slices.Equal(csr.Spec.Groups, []string{"dev"}) {
				t.Errorf("jane %s: a request for a certificate is of %+v", step.what, csr.Spec)
			}
		}
		// An expired token identifies no user, and its rights end with it.
		if u, ok := control.Authenticate(bearer("old")); ok {
			t.Errorf("an old token is %v", u)
		}
		if _, ok, err := (userTokens{d}).AuthenticateToken(t.Context(), "old"); ok || !errors.Is(err, errTokenExpired) {
			t.Errorf("an old token: %v, %v", ok, err)
		}
		if u, ok := control.UserByCredential(v1.Hash("new")); !ok || u.GetUID() != "second" {
			t.Errorf("the credential of a token until %v is %v, %v", tomorrow, u, ok)
		}
		if u, ok := control.UserByCredential(v1.Hash("old")); ok {
			t.Errorf("the credential of an old token is %v", u)
		}
		if u, ok := control.Authenticate(bearer("new")); !ok || u.GetUID() != "second" || !control.Expires("new").Equal(tomorrow) || !control.Expires("two").IsZero() {
			t.Errorf("a token until %v is %v until %v", tomorrow, u, control.Expires("new"))
		}
		// Who is no User of this server stays who it was; a User's uid is not another's name.
		stranger := &user.DefaultInfo{Name: "jane", UID: "of-a-provider", Groups: []string{"x"}}
		if found, ok := control.Current(control.Remember(stranger)); !ok || found.GetUID() != "of-a-provider" {
			t.Errorf("a stranger of that name is %v, %v", found, ok)
		}
	})
}

// TestServiceAccountToken: a ServiceAccount's token is for this server, and who was remembered is the one that exists.
func TestServiceAccountToken(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		st := storetest.Run(t, store.Options{DB: db})
		d := directory.New(st, slog.New(slog.DiscardHandler))
		storetest.Create(t, st, storetest.Namespace(t, "kube-system")) // of the signing keys
		web := storetest.Create(t, st, storetest.Object(t, object.Key{Kind: object.ServiceAccounts, Namespace: "n", Name: "web"}, ""))
		if err := d.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		keys := serviceaccount.NewKeys(objects.Writer{Store: st, Kinds: kind.NewRegistry(builtin.Kinds())}, slog.New(slog.DiscardHandler), time.Now)
		if err := keys.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		accounts := &serviceaccount.Authority{Keys: keys, Issuer: "https://here", Account: d.Account, Now: time.Now}
		control := NewControl(d, Config{ServiceAccounts: accounts})
		issue := func(audience string) string {
			token, _, err := accounts.Issue("n", serviceaccount.Bound{Name: "web", UID: web.UID}, []string{audience}, time.Hour, nil)
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		here, there := issue("https://here"), issue("https://there")
		u, ok := control.Authenticate(bearer(here))
		if !ok || u.GetName() != "system:serviceaccount:n:web" || !slices.Contains(u.GetGroups(), "system:authenticated") || control.ServiceAccounts() != accounts {
			t.Fatalf("the account is %v, %v", u, ok)
		}
		if left := time.Until(control.Expires(here)); left < 50*time.Minute || left > time.Hour {
			t.Errorf("its token ends in %v", left)
		}
		if u, ok := control.Authenticate(bearer(there)); ok {
			t.Errorf("a token for another server is %v", u)
		}
		other := authenticator.WithAudiences(t.Context(), authenticator.Audiences{"https://there"})
		if response, ok, _ := control.AuthenticateToken(other, there); !ok || !slices.Equal(response.Audiences, authenticator.Audiences{"https://there"}) {
			t.Errorf("asked for the other server: %+v, %v", response, ok)
		}
		if found, ok := control.Current(u); !ok || found.GetUID() != string(web.UID) {
			t.Errorf("the account is remembered as %v, %v", found, ok)
		}
		if found, ok := control.Current(&user.DefaultInfo{Name: u.GetName(), UID: "another"}); ok {
			t.Errorf("an account of that name before is %v", found)
		}
		if _, err := st.Delete(t.Context(), store.DeleteRequest{Key: web.Key}); err != nil {
			t.Fatal(err)
		}
		if err := d.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); ok; _, ok = control.Authenticate(bearer(here)) {
			if time.Now().After(deadline) { // what was verified is good for a second
				t.Fatal("the token of a removed account is good")
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// TestAuthenticate: the credential leaves the request, what fails is counted and slowed, and only this process can say
// who a client is.
func TestAuthenticate(t *testing.T) {
	d := control()
	session := httptest.NewRequest("GET", "/api", nil)
	session.Header.Set("Authorization", "Bearer x")
	session = session.WithContext(WithClient(t.Context(), &user.DefaultInfo{Name: "jane"}))
	if u, ok := d.Authenticate(session); !ok || u.GetName() != "jane" || session.Header.Get("Authorization") != "" {
		t.Errorf("a session is %v, %v, with %v", u, ok, session.Header)
	}
	if c, ok := CredentialOf(bearer("x").WithContext(session.Context())); ok {
		t.Errorf("a session begins with %+v of another", c)
	}
	own := httptest.NewRequest("GET", "/api", nil)
	if u, ok := d.Authenticate(own.WithContext(AsServer(t.Context()))); !ok || u.GetName() != user.APIServerUser || !slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		t.Errorf("the server is %v, %v", u, ok)
	}
	for range failureBurst {
		if u, ok := d.Authenticate(bearer("wrong")); ok {
			t.Fatalf("a wrong token is %v", u)
		}
	}
	certificate := bearer("wrong")
	certificate.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
	asSession := bearer("wrong")
	for what, test := range map[string]struct {
		req  *http.Request
		slow bool
	}{
		"a wrong token, once more":       {bearer("wrong"), true},
		"another token":                  {bearer("other"), false}, // one token that is repeated is one failure of its address
		"a certificate, and the token":   {certificate, false},
		"a session, and the token":       {asSession.WithContext(session.Context()), false},
		"no credential":                  {httptest.NewRequest("GET", "/api", nil), false},
		"the token from another address": {func() *http.Request { r := bearer("wrong"); r.RemoteAddr = "198.51.100.7:1"; return r }(), false},
	} {
		if wait := d.Slow(test.req); (wait > 0) != test.slow {
			t.Errorf("%s waits for %v", what, wait)
		}
	}
	if s, f := d.Throttle().Attempts(Success), d.Throttle().Attempts(Failure); s != 1 || f != failureBurst || d.Throttle().Attempts(Throttled) != 1 {
		t.Errorf("%d succeeded, %d failed, %d waited", s, f, d.Throttle().Attempts(Throttled))
	}
	if names := fmt.Sprint(Success, Failure, Throttled); names != "success failure throttled" {
		t.Errorf("the results are %s", names)
	}
}

// TestCredentialOf: a session begins with a bearer token or a certificate of the client itself.
func TestCredentialOf(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer x": "x", "bearer x": "x", "BEARER  x ": "x", "Basic x": "", "Bearer": "", "Bearer x y": "", "x": "", "": "",
	} {
		req := httptest.NewRequest("POST", "/", nil)
		req.Header.Set("Authorization", header)
		if c, ok := CredentialOf(req); c.Token != want || ok != (want != "") || c.Chain != nil {
			t.Errorf("%q: %+v, %v", header, c, ok)
		}
		req.Header.Set("Impersonate-User", "root")
		if c, ok := CredentialOf(req); ok {
			t.Errorf("%q as another user: %+v", header, c)
		}
	}
}

func TestImpersonates(t *testing.T) {
	for _, test := range []struct {
		header       string // NAME: VALUE, …
		impersonates bool
		unknown      string
	}{
		{"Accept: x", false, ""},
		{"Impersonate-User: jane", true, ""},
		{"Impersonate-Group: ops", true, ""},
		{"Impersonate-Uid: 1", true, ""},
		{"Impersonate-Extra-Scopes: x", true, ""},
		{"Impersonate-User: ", true, "Impersonate-User"},
		{"Impersonate-Userextra: x", true, "Impersonate-Userextra"},
		{"Impersonate-User: jane, Impersonate-Role: x", true, "Impersonate-Role"},
		{"Impersonate-User: jane, Impersonate-Group: ", true, "Impersonate-Group"},
	} {
		h := http.Header{}
		for one := range strings.SplitSeq(test.header, ", ") {
			name, value, _ := strings.Cut(one, ": ")
			h.Add(name, value)
		}
		if impersonates, unknown := Impersonates(h); impersonates != test.impersonates || unknown != test.unknown {
			t.Errorf("%s: %v, %q", test.header, impersonates, unknown)
		}
	}
	if _, unknown := Impersonates(http.Header{"Impersonate-User": nil}); unknown == "" {
		t.Error("a header without a value is not noticed")
	}
}

// TestRestoredUser: the tokens of a User that is restored are those that the deletion revoked: it has them again only if
// somebody asks for them, and the answer names them.
func TestRestoredUser(t *testing.T) {
	k, err := UserKind()
	if err != nil || !k.Reborn {
		t.Fatalf("reborn %v, %v", k.Reborn, err)
	}
	for _, test := range []struct {
		spec   string
		keep   bool
		tokens bool
		want   string // part of the warning; "" is none
	}{
		{`{"groups":["ops"]}`, false, false, ""},
		{`{"groups":["ops"],"tokens":[{"name":"a","sha256":"x"},{"name":"b"}]}`, false, false, `are left out, because the deletion revoked them: "a", "b";`},
		{`{"groups":["ops"],"tokens":[{"name":"a","sha256":"x"}]}`, true, true, `its old tokens are valid again: "a"`},
	} {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(`{"apiVersion":"access.exeunt.dev/v1","kind":"User","spec":` + test.spec + `}`)); err != nil {
			t.Fatal(err)
		}
		warnings := strings.Join(k.Restored(u, test.keep), "|")
		_, tokens, _ := unstructured.NestedSlice(u.Object, "spec", "tokens")
		if groups, _, _ := unstructured.NestedSlice(u.Object, "spec", "groups"); len(groups) != 1 || tokens != test.tokens || (warnings == "") != (test.want == "") || !strings.Contains(warnings, test.want) {
			t.Errorf("%+v: %v, %q", test, u.Object, warnings)
		}
	}
}

// TestControlAuthorizes: the decision is about the request in the context; a denial has its attributes.
func TestControlAuthorizes(t *testing.T) {
	d := holding([]string{"get - secrets one shop"})
	ask := func(client, verb string) (authorizer.Attributes, error) {
		ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: client})
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIVersion: "v1", Resource: "secrets", Namespace: "shop", Name: "one"})
		denied, reason, err := d.Authorize(ctx)
		if denied == nil && !strings.Contains(reason, "RBAC: allowed by RoleBinding") {
			t.Errorf("%s may %s because of %q", client, verb, reason)
		}
		return denied, err
	}
	if denied, err := ask("jane", "get"); denied != nil || err != nil {
		t.Errorf("jane gets: %v, %v", denied, err)
	}
	for _, who := range [][2]string{{"jane", "delete"}, {"eve", "get"}} {
		if denied, err := ask(who[0], who[1]); err != nil || denied == nil || denied.GetUser().GetName() != who[0] || denied.GetVerb() != who[1] {
			t.Errorf("%v: %v, %v", who, denied, err)
		}
	}
	if denied, _, err := d.Authorize(context.Background()); err == nil && denied == nil {
		t.Error("a request that was not parsed is allowed")
	}
	if rules, _, _, err := d.Rules().RulesFor(t.Context(), &user.DefaultInfo{Name: "jane"}, "shop"); err != nil || len(rules) != 1 || d.Roles().Objects().Roles == nil {
		t.Errorf("jane's rules: %v, %v", rules, err)
	}
}

// TestSignClient: a certificate ends with the authority, and is of one User only if the server says so.
func TestSignClient(t *testing.T) {
	id := open(t, t.TempDir(), hosts, start)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	asked := &x509.CertificateRequest{PublicKey: &key.PublicKey, Subject: pkix.Name{CommonName: "jane", ExtraNames: []pkix.AttributeTypeAndValue{{Type: uidAttribute, Value: UserUIDPrefix + "forged"}}}}
	asked.Subject.Names = asked.Subject.ExtraNames
	asked.DNSNames, asked.IPAddresses, asked.EmailAddresses, asked.URIs = []string{"a.example"}, []net.IP{{10, 0, 0, 1}}, []string{"jane@a.example"}, []*url.URL{{Scheme: "spiffe", Host: "a"}}
	for _, test := range []struct {
		uid  types.UID
		life time.Duration
		ends time.Time
	}{{"1", time.Hour, start.Add(time.Hour)}, {"", 2 * authorityLife, id.Authority.NotAfter}} {
		text, err := id.SignClient(asked, test.uid, test.life, start)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		response, _, err := identify([]*x509.Certificate{leaf})
		if want := UserUIDPrefix + string(test.uid); err != nil || test.uid != "" && response.User.GetUID() != want || test.uid == "" && response.User.GetUID() != "" || !leaf.NotAfter.Equal(test.ends) || leaf.IsCA {
			t.Errorf("%+v: %v until %v, %v", test, response.User, leaf.NotAfter, err)
		}
		if got := fmt.Sprint(leaf.DNSNames, leaf.IPAddresses, leaf.EmailAddresses, leaf.URIs); got != "[a.example] [10.0.0.1] [jane@a.example] [spiffe://a]" {
			t.Errorf("the certificate is for %s", got)
		}
		if leaf.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment || !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
			t.Errorf("the certificate is to be used as %v, %v", leaf.KeyUsage, leaf.ExtKeyUsage)
		}
	}
}
