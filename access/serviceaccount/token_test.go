package serviceaccount

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	library "k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/exeunt/exeunt/object"
)

var start = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

// world is an authority with one ServiceAccount, shop/web, and one Pod.
type world struct {
	*Authority
	now      time.Time
	accounts map[string]types.UID
	objects  map[object.Key]types.UID
}

func newWorld(t testing.TB) *world {
	w := &world{now: start, accounts: map[string]types.UID{"shop/web": "uid-1"}, objects: map[object.Key]types.UID{
		{Kind: "pods", Namespace: "shop", Name: "p"}: "uid-p",
	}}
	w.Authority = &Authority{
		Keys: keysOf(t, func() time.Time { return w.now }, start.Add(-time.Hour)), Issuer: "https://issuer.example", Now: func() time.Time { return w.now },
		Account: func(namespace, name string) types.UID { return w.accounts[namespace+"/"+name] },
		UID:     func(_ context.Context, key object.Key) (types.UID, error) { return w.objects[key], nil },
	}
	return w
}

// keysOf makes keys of these ages.
func keysOf(t testing.TB, now func() time.Time, made ...time.Time) *Keys {
	t.Helper()
	k := &Keys{now: now}
	data := map[string][]byte{}
	for _, at := range made {
		value, err := newKey()
		if err != nil {
			t.Fatal(err)
		}
		data[strconv.FormatInt(at.Unix(), 10)] = value
	}
	keys, err := parseKeys(data)
	if err != nil {
		t.Fatal(err)
	}
	k.set.Store(&keys)
	return k
}

func (w *world) issue(t testing.TB, audiences []string, life time.Duration, bound *Bound) string {
	t.Helper()
	if audiences == nil {
		audiences = []string{w.Issuer}
	}
	token, _, err := w.Issue("shop", Bound{Name: "web", UID: "uid-1"}, audiences, life, bound)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestToken(t *testing.T) {
	w := newWorld(t)
	response, ok, err := w.AuthenticateToken(t.Context(), w.issue(t, nil, time.Hour, &Bound{"Pod", "p", "uid-p"}))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	u := response.User
	if u.GetName() != "system:serviceaccount:shop:web" || u.GetUID() != "uid-1" ||
		!slices.Equal(u.GetGroups(), []string{"system:serviceaccounts", "system:serviceaccounts:shop"}) ||
		u.GetExtra()["authentication.kubernetes.io/pod-uid"][0] != "uid-p" || !strings.HasPrefix(u.GetExtra()["authentication.kubernetes.io/credential-id"][0], "JTI=") {
		t.Errorf("got %+v", u)
	}
}

// TestBoundTokens: a token of a Secret or a Node is good while that exists.
func TestBoundTokens(t *testing.T) {
	w := newWorld(t)
	w.objects[object.Key{Kind: object.Secrets, Namespace: "shop", Name: "s"}], w.objects[object.Key{Kind: "nodes", Name: "n"}] = "uid-s", "uid-n"
	for _, bound := range []*Bound{{"Secret", "s", "uid-s"}, {"Node", "n", "uid-n"}, nil} {
		token := w.issue(t, nil, time.Hour, bound)
		response, ok, err := w.AuthenticateToken(t.Context(), token)
		if err != nil || !ok || !Expires(token).Equal(start.Add(time.Hour)) {
			t.Fatalf("%v: %v, %v, until %v", bound, ok, err, Expires(token))
		}
		extra := response.User.GetExtra()
		if node := extra["authentication.kubernetes.io/node-name"]; (len(node) == 1 && node[0] == "n") != (bound != nil && bound.Kind == "Node") || extra["authentication.kubernetes.io/pod-name"] != nil {
			t.Errorf("%v: %v", bound, extra)
		}
	}
	if !Expires("x").IsZero() {
		t.Error("what is no token has an end")
	}
	failed := errors.New("no database")
	w.UID = func(context.Context, object.Key) (types.UID, error) { return "uid-p", failed }
	if _, ok, err := w.AuthenticateToken(t.Context(), w.issue(t, nil, time.Hour, &Bound{"Pod", "p", "uid-p"})); ok || !errors.Is(err, failed) {
		t.Errorf("without a database: %v, %v", ok, err)
	}
}

// TestSecretToken: the token of a Secret is good while the Secret has it and is not being deleted, and its ServiceAccount
// is the same, for this server alone.
func TestSecretToken(t *testing.T) {
	w := newWorld(t)
	account := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1"}}
	public, private := library.LegacyClaims(account, corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}})
	token, err := w.GenerateToken(t.Context(), public, private)
	if err != nil {
		t.Fatal(err)
	}
	good := corev1.Secret{Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token)}}
	deleting, other, empty, now := good, corev1.Secret{Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token + "x")}}, corev1.Secret{}, metav1.Now()
	deleting.DeletionTimestamp = &now
	failed := errors.New("no database")
	for name, test := range map[string]struct {
		secret   *corev1.Secret
		err      error
		uid      types.UID
		audience string
		want     error // nil if it is good
	}{
		"good":                   {&good, nil, "uid-1", w.Issuer, nil},
		"the Secret is deleting": {&deleting, nil, "uid-1", w.Issuer, errRevoked},
		"it has another token":   {&other, nil, "uid-1", w.Issuer, errRevoked},
		"it has none":            {&empty, nil, "uid-1", w.Issuer, errRevoked},
		"it is gone":             {nil, object.Errorf(object.NotFound, "gone"), "uid-1", w.Issuer, errRevoked},
		"without a database":     {nil, failed, "uid-1", w.Issuer, failed},
		"another account":        {&good, nil, "uid-2", w.Issuer, errRevoked},
		"no account":             {&good, nil, "", w.Issuer, errRevoked},
		"for another server":     {&good, nil, "uid-1", "https://there", errAudience},
	} {
		w.accounts["shop/web"] = test.uid
		w.Secret = func(_ context.Context, namespace, name string) (*corev1.Secret, error) {
			if namespace != "shop" || name != "s" {
				t.Errorf("%s: asked for %s/%s", name, namespace, name)
			}
			return test.secret, test.err
		}
		response, ok, err := w.AuthenticateToken(authenticator.WithAudiences(t.Context(), authenticator.Audiences{test.audience}), token)
		if ok != (test.want == nil) || !errors.Is(err, test.want) || ok && (response.User.GetName() != "system:serviceaccount:shop:web" || response.User.GetUID() != "uid-1") {
			t.Errorf("%s: %+v, %v, %v", name, response, ok, err)
		}
	}
	w.Secret = nil
	if _, ok, _ := w.AuthenticateToken(t.Context(), token); ok {
		t.Error("a server that knows no tokens of Secrets accepts one")
	}
}

// TestDiscovery: other servers read the issuer and the public keys, and nothing else.
func TestDiscovery(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct{ method, path, kind, want string }{
		{"GET", DiscoveryPath, "application/json", `"jwks_uri":"https://example.com/openid/v1/jwks"`},
		{"HEAD", JWKSPath, "application/jwk-set+json", `"kid":"` + w.Keys.signing().id + `"`},
		{"POST", JWKSPath, "text/plain; charset=utf-8", "use GET"},
	} {
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, httptest.NewRequest(test.method, test.path, nil))
		if rec.Header().Get("Content-Type") != test.kind || !strings.Contains(rec.Body.String(), test.want) || strings.Contains(rec.Body.String(), `"d":`) || (rec.Code == 200) != (test.method != "POST") {
			t.Errorf("%s %s: %d %s", test.method, test.path, rec.Code, rec.Body)
		}
	}
}

// TestRefusedTokens: each forgery that an attacker may try, by name.
func TestRefusedTokens(t *testing.T) {
	valid := func(t *testing.T, w *world) string { return w.issue(t, nil, time.Hour, &Bound{"Pod", "p", "uid-p"}) }
	for name, test := range map[string]struct {
		token func(*testing.T, *world) string
		after func(*world)
		ctx   func(context.Context) context.Context
		want  error // nil if the token is not known
	}{
		"expired":            {token: valid, after: func(w *world) { w.now = w.now.Add(2 * time.Hour) }, want: errExpired},
		"at its last second": {token: valid, after: func(w *world) { w.now = w.now.Add(time.Hour + time.Second) }, want: errExpired},
		"not yet valid":      {token: valid, after: func(w *world) { w.now = w.now.Add(-time.Hour) }, want: errExpired},
		"another audience":   {token: func(t *testing.T, w *world) string { return w.issue(t, []string{"vault"}, time.Hour, nil) }, want: errAudience},
		"account removed":    {token: valid, after: func(w *world) { delete(w.accounts, "shop/web") }, want: errRevoked},
		"account recreated":  {token: valid, after: func(w *world) { w.accounts["shop/web"] = "uid-2" }, want: errRevoked},
		"pod removed":        {token: valid, after: func(w *world) { clear(w.objects) }, want: errRevoked},
		"pod recreated":      {token: valid, after: func(w *world) { w.objects[object.Key{Kind: "pods", Namespace: "shop", Name: "p"}] = "uid-q" }, want: errRevoked},
		"secret removed":     {token: func(t *testing.T, w *world) string { return w.issue(t, nil, time.Hour, &Bound{"Secret", "s", "uid-s"}) }, want: errRevoked},
		"node removed":       {token: func(t *testing.T, w *world) string { return w.issue(t, nil, time.Hour, &Bound{"Node", "n", "uid-n"}) }, want: errRevoked},
		"pod without a uid":  {token: func(t *testing.T, w *world) string { return w.issue(t, nil, time.Hour, &Bound{"Pod", "q", ""}) }, want: errRevoked},
		"account of no uid": {token: func(t *testing.T, w *world) string {
			token, _, err := w.Issue("shop", Bound{Name: "none"}, []string{w.Issuer}, time.Hour, nil)
			if err != nil {
				t.Fatal(err)
			}
			return token
		}, want: errRevoked},
		"key removed":         {token: valid, after: func(w *world) { w.Keys.set.Store(keysOf(t, nil, start).set.Load()) }},
		"asked for another":   {token: valid, ctx: func(ctx context.Context) context.Context { return authenticator.WithAudiences(ctx, []string{"vault"}) }, want: errAudience},
		"another issuer":      {token: valid, after: func(w *world) { w.Issuer = "https://other.example" }},
		"empty":               {token: func(*testing.T, *world) string { return "" }},
		"not a JWT":           {token: func(*testing.T, *world) string { return "a.b.c" }},
		"a changed signature": {token: func(t *testing.T, w *world) string { s := valid(t, w); return s[:len(s)-4] + "AAAA" }},
		"a changed claim": {token: func(t *testing.T, w *world) string {
			parts := strings.Split(valid(t, w), ".")
			body, _ := base64.RawURLEncoding.DecodeString(parts[1])
			parts[1] = base64.RawURLEncoding.EncodeToString([]byte(strings.ReplaceAll(string(body), "shop", "bank")))
			return strings.Join(parts, ".")
		}},
		"algorithm none": {token: func(t *testing.T, w *world) string {
			parts := strings.Split(valid(t, w), ".")
			parts[0] = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"` + w.Keys.signing().id + `"}`))
			return parts[0] + "." + parts[1] + "."
		}},
		"the public key as a secret": {token: func(t *testing.T, w *world) string {
			k := w.Keys.signing()
			public, _ := x509.MarshalPKIXPublicKey(k.public)
			return forged(t, w, jose.HS256, public, k.id)
		}},
		"another key with our id": {token: func(t *testing.T, w *world) string {
			other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			return forged(t, w, jose.ES256, other, w.Keys.signing().id)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			token := test.token(t, w)
			if test.after != nil {
				test.after(w)
			}
			ctx := t.Context()
			if test.ctx != nil {
				ctx = test.ctx(ctx)
			}
			response, ok, err := w.AuthenticateToken(ctx, token)
			if ok || response != nil || err != test.want {
				t.Errorf("got %v %v %v, want %v", response, ok, err, test.want)
			}
		})
	}
}

func forged(t *testing.T, w *world, algorithm jose.SignatureAlgorithm, key any, id string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: w.Issuer, Subject: "system:serviceaccount:shop:web", Audience: jwt.Audience{w.Issuer}, Expiry: jwt.NewNumericDate(w.now.Add(time.Hour)),
	}).Claims(private{claims{Namespace: "shop", ServiceAccount: ref{"web", "uid-1"}}}).CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestRotation: a new key signs only when every replica knows it, and the old one still
// verifies.
func TestRotation(t *testing.T) {
	w := newWorld(t)
	old := w.issue(t, nil, 2*time.Hour, nil)
	both := append(slices.Clone(*w.Keys.set.Load()), (*keysOf(t, nil, start).set.Load())...)
	w.Keys.set.Store(&both)
	if w.Keys.signing().id != both[0].id {
		t.Error("a key signs before other replicas know it")
	}
	for _, test := range []struct {
		id   string
		want bool
	}{{both[0].id, true}, {both[1].id, true}, {"x", false}} {
		if w.Keys.Known(test.id) != test.want {
			t.Errorf("key %q is known: %v", test.id, !test.want)
		}
	}
	w.now = start.Add(2 * settle)
	if w.Keys.signing().id != both[1].id {
		t.Error("the old key still signs")
	}
	for _, token := range []string{old, w.issue(t, nil, time.Hour, nil)} {
		if _, ok, err := w.AuthenticateToken(t.Context(), token); !ok {
			t.Error(err)
		}
	}
	if n := len(w.JWKS().Keys); n != 2 {
		t.Errorf("%d keys are published", n)
	}
}

// TestMaxLife: a request for a longer lifetime gets the maximum.
func TestMaxLife(t *testing.T) {
	w := newWorld(t)
	if _, expires, _ := w.Issue("shop", Bound{Name: "web", UID: "uid-1"}, []string{"x"}, 10*MaxLife, nil); !expires.Equal(start.Add(MaxLife)) {
		t.Errorf("expires %v", expires)
	}
}

// FuzzAuthenticateToken: for any input, only an issued token is accepted.
func FuzzAuthenticateToken(f *testing.F) {
	w := newWorld(f)
	valid := w.issue(f, nil, time.Hour, nil)
	f.Add(valid)
	f.Add("a.b.c")
	f.Add("")
	f.Add(strings.ReplaceAll(valid, ".", ".."))
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		if _, ok, _ := w.AuthenticateToken(context.Background(), token); ok && token != valid {
			// Base64 has several spellings of the last bits that decode to the same bytes.
			if parts := strings.Split(token, "."); len(parts) != 3 || parts[1] != strings.Split(valid, ".")[1] {
				t.Errorf("accepted %q", token)
			}
		}
	})
}
