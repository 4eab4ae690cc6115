package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/access/registrytoken"
	accessv1 "github.com/exeunt/exeunt/access/v1"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// tokenWorld is a server with repositories shop/web and other/base, an administrator, and
// users.
type tokenWorld struct {
	*running
	url   string
	layer string // digest of a blob in both repositories
}

func newTokenWorld(t *testing.T, c Config) *tokenWorld {
	t.Helper()
	c.Data, c.RegistryListen = t.TempDir(), "127.0.0.1:0"
	w := &tokenWorld{running: start(t, c), layer: digest.FromString("content").String()}
	w.url = w.registryURL()
	for _, path := range []string{"shop/web", "other/base"} {
		for _, send := range []struct{ method, path, kind, body string }{
			{"POST", "/blobs/uploads/?digest=" + w.layer, "application/octet-stream", "content"},
			{"PUT", "/manifests/v1", "application/vnd.oci.image.manifest.v1+json", fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",`+
				`"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":%q,"size":7},"layers":[]}`, w.layer)},
		} {
			if code, body, _ := w.ask(w.admin(), send.method, "/v2/"+path+send.path, send.kind, send.body); code != 201 {
				t.Fatalf("push %s: %d %s", send.path, code, body)
			}
		}
	}
	return w
}

func (w *tokenWorld) admin() string {
	token, _ := w.loggedIn().Transport.(withLogin)
	return basicHeader(string(token))
}

func basicHeader(password string) string {
	req := http.Request{Header: http.Header{}}
	req.SetBasicAuth("any", password)
	return req.Header.Get("Authorization")
}

// ask sends a request to the registry.
func (w *tokenWorld) ask(authorization, method, path, contentType, body string) (int, string, http.Header) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

// want asks until the answer has a code: roles and users are followed within a second.
func (w *tokenWorld) want(code int, authorization, method, path string) {
	w.t.Helper()
	var got int
	var body string
	dbtest.Await(w.t, fmt.Sprintf("%s %s answers %d", method, path, code), func() bool {
		got, body, _ = w.ask(authorization, method, path, "", "")
		return got == code
	})
	if got != code {
		w.t.Errorf("%s %s: %d %s", method, path, got, body)
	}
}

// bearer gets a token by the scopes that the registry names.
func (w *tokenWorld) bearer(authorization string, scopes ...string) string {
	w.t.Helper()
	query := url.Values{"service": {registrytoken.Service}, "scope": scopes}
	code, body, _ := w.ask(authorization, "GET", registrytoken.Path+"?"+query.Encode(), "", "")
	var answer struct{ Token string }
	if err := json.Unmarshal([]byte(body), &answer); code != 200 || err != nil {
		w.t.Fatalf("a token for %v: %d %s", scopes, code, body)
	}
	return "Bearer " + answer.Token
}

// user makes a user and returns its token.
func (w *tokenWorld) user(name string) string {
	w.t.Helper()
	token := accessv1.NewToken()
	body := fmt.Sprintf(`{"apiVersion":"access.exeunt.dev/v1","kind":"User","metadata":{"name":%q},"spec":{"tokens":[{"name":"one","sha256":%q}]}}`, name, accessv1.Hash(token))
	w.api("POST", "/apis/access.exeunt.dev/v1/users", body, 201)
	dbtest.Await(w.t, "the user is known", func() bool {
		code, _, _ := w.ask(basicHeader(token), "GET", "/v2/", "", "")
		return code == 200
	})
	return token
}

func (w *tokenWorld) api(method, path, body string, want int) string {
	w.t.Helper()
	client, err := rest.HTTPClientFor(w.http)
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.http.Host+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", map[string]string{"PATCH": "application/merge-patch+json"}[method])
	if method == "POST" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != want {
		w.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	return string(text)
}

func (w *tokenWorld) bind(user, role, namespace string) {
	w.t.Helper()
	_, err := w.client.RbacV1().RoleBindings(namespace).Create(w.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

const manifest = "/v2/shop/web/manifests/v1"

// TestRegistryTokens: a client gets tokens by its password, and they carry what it may do.
// Roles, users and passwords that end are followed with every request.
func TestRegistryTokens(t *testing.T) {
	w := newTokenWorld(t, Config{})
	jane := w.user("jane")
	login := basicHeader(jane)

	code, _, header := w.ask("", "GET", manifest, "", "")
	if want := `Bearer realm="` + w.url + `/token",service="exeunt-registry",scope="repository:shop/web:pull"`; code != 401 || header.Get("WWW-Authenticate") != want {
		t.Errorf("the challenge is %d %s, want %s", code, header.Get("WWW-Authenticate"), want)
	}
	// Without a role the token carries nothing, and says why.
	w.want(403, w.bearer(login, "repository:shop/web:pull"), "GET", manifest)
	w.bind("jane", "view", "shop")
	w.want(200, login, "GET", manifest)
	both := w.bearer(login, "repository:shop/web:pull,push", "repository:other/base:pull")
	w.want(200, both, "GET", manifest)
	w.want(200, both, "GET", "/v2/")
	w.want(403, both, "GET", "/v2/other/base/manifests/v1")
	w.want(403, both, "PUT", manifest)
	// A right that the token was not asked for: the challenge leads to one that carries it.
	code, body, header := w.ask(w.bearer(login), "GET", manifest, "", "")
	if code != 401 || !strings.Contains(header.Get("WWW-Authenticate"), `error="insufficient_scope"`) || !strings.Contains(body, "UNAUTHORIZED") {
		t.Errorf("a token without scope: %d %s %v", code, body, header)
	}
	w.want(401, both, "GET", "/v2/_catalog")
	if code, body, _ := w.ask(w.bearer(login, "registry:catalog:*"), "GET", "/v2/_catalog", "", ""); code != 200 || !strings.Contains(body, `["shop/web"]`) {
		t.Errorf("jane's catalog: %d %s; want what she may pull", code, body)
	}
	if code, body, _ := w.ask(w.admin(), "GET", "/v2/_catalog?n=1", "", ""); code != 200 || !strings.Contains(body, `["other/base"]`) {
		t.Errorf("the administrator's catalog: %d %s", code, body)
	}
	// The role goes, then the password: both end what the token carries.
	if err := w.client.RbacV1().RoleBindings("shop").Delete(t.Context(), "jane-view", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.want(403, both, "GET", manifest)
	w.bind("jane", "edit", "shop")
	w.want(200, both, "GET", manifest)
	w.api("DELETE", "/apis/access.exeunt.dev/v1/users/jane", "", 200)
	w.want(401, both, "GET", manifest)
	w.want(401, login, "GET", manifest)
	again := w.user("jane") // another user of the same name, with the same bindings
	w.want(401, both, "GET", manifest)
	w.want(200, basicHeader(again), "GET", manifest)
	w.stop()
}

// TestRegistryPrivilegeTricks: what must not work, by name.
func TestRegistryPrivilegeTricks(t *testing.T) {
	w := newTokenWorld(t, Config{})
	jane := w.user("jane")
	login := basicHeader(jane)
	w.bind("jane", "edit", "shop")
	w.want(200, login, "GET", manifest)

	t.Run("mount from a foreign repository", func(t *testing.T) {
		for _, from := range []string{"&from=other/base", ""} {
			for _, authorization := range []string{login, w.bearer(login, "repository:shop/web:pull,push", "repository:other/base:pull")} {
				w.want(202, authorization, "POST", "/v2/shop/web/blobs/uploads/?mount="+w.layer+from)
			}
		}
		w.bind("jane", "view", "other")
		w.want(200, login, "GET", "/v2/other/base/manifests/v1")
		w.want(201, w.bearer(login, "repository:shop/new:pull,push", "repository:other/base:pull"), "POST", "/v2/shop/new/blobs/uploads/?mount="+w.layer+"&from=other/base")
		// Roles allow it, and the token does not: the challenge names both scopes.
		w.want(401, w.bearer(login, "repository:shop/new:pull,push"), "POST", "/v2/shop/new/blobs/uploads/?mount="+w.layer+"&from=other/base")
	})
	t.Run("token of another audience", func(t *testing.T) {
		if err := w.client.RbacV1().RoleBindings("other").Delete(t.Context(), "jane-view", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		puller := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "puller"}}
		if _, err := w.client.CoreV1().ServiceAccounts("default").Create(t.Context(), puller, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		account := func(audiences ...string) string {
			r, err := w.client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "puller",
				&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return r.Status.Token
		}
		for name, c := range map[string]struct {
			header string
			want   int
		}{
			"the API's token as the registry's":      {"Bearer " + account(), 401},
			"a User's token as the registry's":       {"Bearer " + jane, 401},
			"a token that Kubernetes made for us":    {"Bearer " + account(registrytoken.Service), 401},
			"a token for another service, to log in": {basicHeader(account("vault")), 401},
			"a token for us, to log in":              {basicHeader(account(registrytoken.Service)), 200},
			"a token for the API, to log in":         {basicHeader(account()), 200},
		} {
			t.Log(name)
			w.want(c.want, c.header, "GET", "/v2/")
		}
		token := strings.TrimPrefix(w.bearer(w.admin(), "repository:shop/web:pull"), "Bearer ")
		api, err := rest.HTTPClientFor(&rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: w.http.CAData}})
		if err != nil {
			t.Fatal(err)
		}
		if status := statusOf(t, api, "GET", w.http.Host+"/api/v1/namespaces", ""); status != 401 {
			t.Errorf("the registry's token at the API: %d", status)
		}
		review := w.api("POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"`+token+`","audiences":["`+registrytoken.Service+`"]}}`, 201)
		if strings.Contains(review, `"authenticated":true`) {
			t.Errorf("a review of the registry's token: %s", review)
		}
		w.want(401, basicHeader(token), "GET", "/v2/")
	})
	t.Run("refresh token", func(t *testing.T) {
		_, body, _ := w.ask(login, "GET", registrytoken.Path+"?offline_token=true", "", "")
		var answer struct {
			Refresh string `json:"refresh_token"`
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Refresh == "" {
			t.Fatalf("%s: %v", body, err)
		}
		w.want(401, "Bearer "+answer.Refresh, "GET", manifest)
		w.want(401, basicHeader(answer.Refresh), "GET", manifest)
		form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {answer.Refresh}, "scope": {"repository:shop/web:pull"}}.Encode()
		refresh := func() int {
			code, _, _ := w.ask("", "POST", registrytoken.Path, "application/x-www-form-urlencoded", form)
			return code
		}
		if code := refresh(); code != 200 {
			t.Errorf("refresh: %d", code)
		}
		w.api("DELETE", "/apis/access.exeunt.dev/v1/users/jane", "", 200)
		dbtest.Await(t, "a replayed refresh token of a removed user is refused", func() bool { return refresh() == 401 })
	})
	t.Run("scopes", func(t *testing.T) {
		for _, scope := range []string{"repository:shop/../other/base:pull", "repository:Shop/web:pull", "repository:*:pull", "repository:shop/*:*"} {
			if code, body, _ := w.ask(w.admin(), "GET", registrytoken.Path+"?scope="+url.QueryEscape(scope), "", ""); code != 400 {
				t.Errorf("%s: %d %s", scope, code, body)
			}
		}
	})
	w.stop()
}

// TestAnonymousPull: a client that has not logged in pulls what its Repository opens, with
// a token and without, and can do nothing else.
func TestAnonymousPull(t *testing.T) {
	w := newTokenWorld(t, Config{})
	open := func(yes bool) {
		w.api("PATCH", "/apis/registry.exeunt.dev/v1/namespaces/shop/repositories/web", fmt.Sprintf(`{"spec":{"anonymousPull":%v}}`, yes), 200)
	}
	w.want(401, "", "GET", manifest)
	w.want(401, w.bearer("", "repository:shop/web:pull"), "GET", manifest)
	open(true)
	token := w.bearer("", "repository:shop/web:pull,push,delete", "repository:other/base:pull", "registry:catalog:*")
	for _, authorization := range []string{"", token} {
		w.want(200, authorization, "GET", manifest)
		w.want(200, authorization, "GET", "/v2/shop/web/blobs/"+w.layer)
		w.want(200, authorization, "GET", "/v2/shop/web/tags/list")
		for _, to := range []string{"GET /v2/", "GET /v2/_catalog", "GET /v2/other/base/manifests/v1", "PUT " + manifest, "DELETE " + manifest,
			"POST /v2/shop/web/blobs/uploads/", "POST /v2/other/base/blobs/uploads/?from=shop/web&mount=" + w.layer, "GET /v2/shop/../shop/web/x", "GET /v2/UPPER/tags/list"} {
			method, path, _ := strings.Cut(to, " ")
			w.want(401, authorization, method, path)
		}
	}
	// A client without rights is not worse off than one that has not logged in.
	eve := basicHeader(w.user("eve"))
	w.want(200, eve, "GET", manifest)
	w.want(403, eve, "GET", "/v2/other/base/manifests/v1")
	open(false)
	w.want(401, token, "GET", manifest)
	w.want(403, eve, "GET", manifest)
	w.stop()
}

// TestRegistryThrottle: wrong passwords are slowed, at the registry and at its tokens.
func TestRegistryThrottle(t *testing.T) {
	w := newTokenWorld(t, Config{})
	for _, path := range []string{"/v2/", registrytoken.Path} {
		slowed := false
		for i := 0; i < 200 && !slowed; i++ {
			code, _, header := w.ask(basicHeader(fmt.Sprint("guess", path, i)), "GET", path, "", "")
			if slowed = code == 429; slowed && header.Get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After", path)
			}
		}
		if !slowed {
			t.Errorf("%s: 200 wrong passwords and not slowed", path)
		}
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {"guess"}}.Encode()
	if code, _, _ := w.ask("", "POST", registrytoken.Path, "application/x-www-form-urlencoded", form); code != 429 {
		t.Errorf("a wrong refresh token after wrong passwords: %d", code)
	}
	if code, _, _ := w.ask(w.admin(), "GET", "/v2/", "", ""); code != 200 {
		t.Errorf("a client that was known before: %d", code)
	}
	w.stop()
}
