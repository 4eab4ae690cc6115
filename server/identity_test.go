package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/registrytoken"
	v1 "github.com/exeunt/exeunt/access/v1"
	"github.com/exeunt/exeunt/console"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// identities is a server with every source of credentials.
type identities struct {
	*people
	registry string // its URL
	tokens   string // the token file
	provider *httptest.Server
	signer   jose.Signer // of the provider
}

func newIdentities(t *testing.T) *identities {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := &identities{people: &people{key: key}, tokens: filepath.Join(dir, "tokens")}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(out http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(out, `{"issuer":%q,"jwks_uri":%q}`, w.provider.URL, w.provider.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(out http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(out).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	})
	w.provider = httptest.NewTLSServer(mux)
	t.Cleanup(w.provider.Close)
	if w.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil); err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.provider.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.tokens, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.running = start(t, Config{Data: t.TempDir(), RegistryListen: "0.0.0.0:0", Tokens: access.TokenOptions{File: w.tokens, OIDC: access.OIDCOptions{
		Issuer: w.provider.URL, ClientID: "exeunt", UsernameClaim: "email", UsernamePrefix: "-", GroupsClaim: "groups", GroupsPrefix: "sso:", CAFile: ca,
	}}})
	w.registry = strings.Replace(w.registryURL(), "0.0.0.0", "127.0.0.1", 1)
	return w
}

// withToken is a client by a bearer token.
func (w *identities) withToken(token string) *rest.Config {
	config := rest.AnonymousClientConfig(w.http)
	config.BearerToken = token
	return config
}

// send sends a request with headers, NAME: VALUE.
func (w *identities) send(config *rest.Config, method, url, body string, headers ...string) (int, []byte, http.Header) {
	w.t.Helper()
	client, err := rest.HTTPClientFor(config)
	w.must(err)
	req, err := http.NewRequestWithContext(w.t.Context(), method, url, strings.NewReader(body))
	w.must(err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	w.must(err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	w.must(err)
	return resp.StatusCode, data, resp.Header
}

// page sends a request as the console's page, from a browser that has the administrator's
// certificate, which must not matter. The cookie may be empty.
func (w *identities) page(method, path, body, cookie string) (int, []byte, http.Header) {
	w.t.Helper()
	headers := []string{console.Header + ": 1", "Sec-Fetch-Site: same-origin", "Content-Type: application/json"}
	if cookie != "" {
		headers = append(headers, "Cookie: "+cookie)
	}
	return w.send(w.http, method, w.http.Host+path, body, headers...)
}

// signIn begins a session by {"token": …} or {"code": …}, and returns its cookie; "" if the server
// refuses.
func (w *identities) signIn(by, secret string) string {
	w.t.Helper()
	code, _, header := w.page("POST", "/console/session", fmt.Sprintf(`{%q:%q}`, by, secret), "")
	if code != http.StatusOK {
		return ""
	}
	cookie, _, _ := strings.Cut(header.Get("Set-Cookie"), ";")
	return cookie
}

// link asks for a one-time link, and returns its code; "" if the server refuses.
func (w *identities) link(config *rest.Config, headers ...string) (code string, status int) {
	w.t.Helper()
	status, body, _ := w.send(config, "POST", w.http.Host+console.LinkPath, "", headers...)
	var link struct{ Path string }
	if status == http.StatusOK {
		w.must(json.Unmarshal(body, &link))
	}
	return strings.TrimPrefix(link.Path, "/console/#/signin/"), status
}

// bindPath lets a user post to a path.
func (w *identities) bindPath(name, path string) {
	w.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "posts"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"post"}, NonResourceURLs: []string{path}}}}
	_, err := w.client.RbacV1().ClusterRoles().Create(w.t.Context(), role, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.RbacV1().ClusterRoleBindings().Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	}, metav1.CreateOptions{})
	w.must(err)
}

// sessionGroups returns the groups of a session, as the page and as the API show them.
func (w *identities) sessionGroups(cookie string) []string {
	w.t.Helper()
	var shown struct{ Groups []string }
	code, body, _ := w.page("GET", "/console/session", "", cookie)
	if code != http.StatusOK || json.Unmarshal(body, &shown) != nil {
		return []string{fmt.Sprint(code)}
	}
	var review authenticationv1.SelfSubjectReview
	code, body, _ = w.page("POST", "/console/api/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, cookie)
	if code != http.StatusCreated || json.Unmarshal(body, &review) != nil || !slices.Equal(review.Status.UserInfo.Groups, shown.Groups) {
		w.t.Errorf("the page shows the groups %q, the API: %d %s", shown.Groups, code, body)
	}
	return shown.Groups
}

// pulls reports whether a client may pull, by a certificate or by basic authentication, and
// with a token of the registry.
func (w *identities) pulls(config *rest.Config) [2]bool {
	w.t.Helper()
	var login []string
	if config.BearerToken != "" {
		login = []string{"Authorization: " + basicHeader(config.BearerToken)}
		config = rest.AnonymousClientConfig(config)
	}
	may := func(config *rest.Config, headers ...string) bool {
		code, _, _ := w.send(config, "GET", w.registry+"/v2/shop/web/tags/list", "", headers...)
		return code == http.StatusOK
	}
	code, body, _ := w.send(config, "GET", w.registry+registrytoken.Path+"?scope=repository:shop/web:pull", "", login...)
	var answer struct{ Token string }
	if code != http.StatusOK || json.Unmarshal(body, &answer) != nil {
		w.t.Errorf("a token of the registry: %d %s", code, body)
	}
	return [2]bool{may(config, login...), may(rest.AnonymousClientConfig(config), "Authorization: Bearer "+answer.Token)}
}

// TestGroupsComeFromTheCredential: the groups of a request are those of its credential. A
// User's groups belong to the User's own tokens, and to nothing else that has its name or its
// uid.
func TestGroupsComeFromTheCredential(t *testing.T) {
	w := newIdentities(t)
	own := v1.NewToken()
	body, err := json.Marshal(v1.User{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "User"}, ObjectMeta: metav1.ObjectMeta{Name: "root2"},
		Spec: v1.UserSpec{Groups: []string{"system:masters"}, Tokens: []v1.Token{{Name: "one", SHA256: v1.Hash(own)}}},
	})
	w.must(err)
	w.must(w.client.RESTClient().Post().AbsPath("/apis/access.exeunt.dev/v1/users").Body(body).Do(t.Context()).Error())
	uid := w.whoami(w.clientOf(w.withToken(own), "root2")).UID
	admin := rest.CopyConfig(w.http)
	if code, body, _ := w.send(admin, "POST", w.registry+"/v2/shop/web/blobs/uploads/?digest=sha256:ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73", "content"); code != http.StatusCreated {
		t.Fatalf("push: %d %s", code, body)
	}
	w.bindPath("root2", console.LinkPath)

	signed := func(name string, subject pkix.Name) *rest.Config {
		r, err := w.request(w.client, name, subject)
		w.must(err)
		w.must(w.approve(w.client, r))
		return w.withCertificate(w.settled(name))
	}
	var lines bytes.Buffer
	filed := func(uid, groups string) *rest.Config {
		token := v1.NewToken()
		fmt.Fprintf(&lines, "sha256:%s,root2,%s,%q\n", v1.Hash(token), uid, groups)
		return w.withToken(token)
	}
	id, err := jwt.Signed(w.signer).Claims(map[string]any{"iss": w.provider.URL, "aud": "exeunt", "sub": uid, "uid": uid, "email": "root2", "groups": []string{"ops"},
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}).CompactSerialize()
	w.must(err)
	account, err := w.client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.must(err)
	ways := []struct {
		name   string
		client *rest.Config
		groups []string // without system:authenticated
	}{
		{"the User's own token", w.withToken(own), []string{"system:masters"}},
		{"a certificate without groups", signed("bare", pkix.Name{CommonName: "root2"}), nil},
		{"a certificate with a group", signed("ops", pkix.Name{CommonName: "root2", Organization: []string{"ops"}}), []string{"ops"}},
		{"a line of the token file with the User's uid", filed(uid, "ops"), []string{"ops"}},
		{"a line of the token file with the uid of a certificate", filed(access.UserUIDPrefix+uid, ""), nil},
		{"an ID token", w.withToken(id), []string{"sso:ops"}},
		{"a ServiceAccount", w.withToken(account.Status.Token), []string{"system:serviceaccounts", "system:serviceaccounts:default"}},
	}
	w.must(os.WriteFile(w.tokens, lines.Bytes(), 0o600))
	for _, way := range ways {
		want := append(slices.Clone(way.groups), "system:authenticated")
		same := func(at string, groups []string) {
			t.Helper()
			if !slices.Equal(groups, want) {
				t.Errorf("%s, %s: the groups are %q, want %q", way.name, at, groups, want)
			}
		}
		client, err := kubernetes.NewForConfig(way.client)
		w.must(err)
		dbtest.Await(t, "the server knows "+way.name, func() bool { return w.whoami(client).Username != "" })
		same("API", w.whoami(client).Groups)
		r, err := w.request(client, "asked", pkix.Name{CommonName: "x"})
		if mayAsk := slices.Contains(way.groups, "system:masters"); mayAsk != (err == nil) {
			t.Errorf("%s: a request for a certificate: %v", way.name, err)
		} else if mayAsk {
			same("requestor of a certificate", r.Spec.Groups)
		}
		if token := way.client.BearerToken; token != "" {
			review, err := w.client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
			w.must(err)
			same("TokenReview", review.Status.User.Groups)
			same("session by token", w.sessionGroups(w.signIn("token", token)))
		}
		if code, status := w.link(way.client); status == http.StatusOK {
			same("session by link", w.sessionGroups(w.signIn("code", code)))
		} else if way.name != "a ServiceAccount" { // which has no right to links
			t.Errorf("%s: a link: %d", way.name, status)
		}
		if may, want := w.pulls(way.client), slices.Contains(way.groups, "system:masters"); may != [2]bool{want, want} {
			t.Errorf("%s: pulls by its credential and by a token of the registry: %v, want %v", way.name, may, want)
		}
	}

	for name, c := range map[string]struct{ impersonate, groups []string }{
		"a name":                   {[]string{"Impersonate-User: root2"}, nil},
		"a name and a uid":         {[]string{"Impersonate-User: root2", "Impersonate-Uid: " + uid}, nil},
		"a uid of a certificate":   {[]string{"Impersonate-User: root2", "Impersonate-Uid: " + access.UserUIDPrefix + uid}, nil},
		"a name, a uid, a group":   {[]string{"Impersonate-User: root2", "Impersonate-Uid: " + uid, "Impersonate-Group: ops"}, []string{"ops"}},
		"the name of a node":       {[]string{"Impersonate-User: system:node:root2", "Impersonate-Uid: " + uid}, nil},
		"the name of the broker's": {[]string{"Impersonate-User: system:exeunt:broker", "Impersonate-Uid: " + uid}, nil},
	} {
		var review authenticationv1.SelfSubjectReview
		code, body, _ := w.send(admin, "POST", w.http.Host+"/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`,
			append([]string{"Content-Type: application/json"}, c.impersonate...)...)
		if want := append(c.groups, "system:authenticated"); code != http.StatusCreated || json.Unmarshal(body, &review) != nil || !slices.Equal(review.Status.UserInfo.Groups, want) {
			t.Errorf("impersonation of %s: %d %s, want the groups %q", name, code, body, want)
		}
		if _, status := w.link(admin, c.impersonate...); status != http.StatusForbidden {
			t.Errorf("impersonation of %s: a link: %d, want 403", name, status)
		}
	}
	w.stop()
}
