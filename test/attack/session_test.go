package attack_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/test/harness"
)

const linkPath = "/exeunt/console/links"

// browsers are browsers in front of servers, which share one database.
type browsers struct {
	t       *testing.T
	servers []*harness.Server
	admin   *kubernetes.Clientset
	tokens  string // the token file
}

func newBrowsers(t *testing.T, engine string) *browsers {
	t.Helper()
	b := &browsers{t: t, tokens: filepath.Join(t.TempDir(), "tokens")}
	b.must(os.WriteFile(b.tokens, nil, 0o600))
	b.servers = []*harness.Server{harness.Start(t, engine, "--token-auth-file", b.tokens)}
	if engine == harness.Postgres {
		b.servers = append(b.servers, b.servers[0].Replica(t))
	}
	var err error
	b.admin, err = kubernetes.NewForConfig(b.servers[0].Config())
	b.must(err)
	return b
}

func (b *browsers) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// raw sends a request as the administrator, which must succeed.
func (b *browsers) raw(verb, path, body string) {
	b.t.Helper()
	kind := "application/json"
	switch {
	case verb == "PATCH" && strings.HasPrefix(body, "["):
		kind = "application/json-patch+json"
	case verb == "PATCH":
		kind = "application/merge-patch+json"
	}
	b.must(b.admin.RESTClient().Verb(verb).AbsPath(path).SetHeader("Content-Type", kind).Body([]byte(body)).Do(b.t.Context()).Error())
}

const users = "/apis/access.exeunt.dev/v1/users"

// user makes a User and returns its token.
func (b *browsers) user(name, groups string) (token string) {
	b.t.Helper()
	token = name + rand.Text()
	b.raw("POST", users, fmt.Sprintf(`{"apiVersion":"access.exeunt.dev/v1","kind":"User","metadata":{"name":%q},"spec":{"groups":[%s],"tokens":[{"name":"one","sha256":"%x"}]}}`,
		name, groups, sha256.Sum256([]byte(token))))
	return token
}

// account makes a ServiceAccount that may ask for links, and returns its token.
func (b *browsers) account(name string, bound *authenticationv1.BoundObjectReference) string {
	b.t.Helper()
	b.raw("POST", "/api/v1/namespaces/default/serviceaccounts", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	b.bind("system:exeunt-console", rbacv1.Subject{Kind: "ServiceAccount", Namespace: "default", Name: name})
	if bound != nil && bound.Kind == "Pod" {
		_, err := b.admin.CoreV1().Pods("default").Create(b.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: bound.Name},
			Spec: corev1.PodSpec{ServiceAccountName: name, Containers: []corev1.Container{{Name: "web", Image: "web"}}}}, metav1.CreateOptions{})
		b.must(err)
	}
	r, err := b.admin.CoreV1().ServiceAccounts("default").CreateToken(b.t.Context(), name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
	b.must(err)
	return r.Status.Token
}

// bind gives a ClusterRole to a subject in the whole cluster.
func (b *browsers) bind(role string, to rbacv1.Subject) {
	b.t.Helper()
	if to.Kind != "ServiceAccount" {
		to.APIGroup = rbacv1.GroupName
	}
	_, err := b.admin.RbacV1().ClusterRoleBindings().Create(b.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{to},
	}, metav1.CreateOptions{})
	b.must(err)
}

// certificate is a client by a certificate that the administrator approves.
func (b *browsers) certificate(name string) *rest.Config {
	b.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.must(err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	b.must(err)
	requests := b.admin.CertificatesV1().CertificateSigningRequests()
	r, err := requests.Create(b.t.Context(), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
	}}, metav1.CreateOptions{})
	b.must(err)
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
	_, err = requests.UpdateApproval(b.t.Context(), name, r, metav1.UpdateOptions{})
	b.must(err)
	config := rest.AnonymousClientConfig(b.servers[0].Config())
	harness.Until(b.t, "the certificate of "+name, func() error {
		r, err := requests.Get(b.t.Context(), name, metav1.GetOptions{})
		if err == nil && len(r.Status.Certificate) == 0 {
			err = fmt.Errorf("no certificate yet: %+v", r.Status)
		}
		if err == nil {
			config.CertData = r.Status.Certificate
		}
		return err
	})
	plain, err := x509.MarshalPKCS8PrivateKey(key)
	b.must(err)
	config.KeyData = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: plain})
	return config
}

func (b *browsers) withToken(token string) *rest.Config {
	config := rest.AnonymousClientConfig(b.servers[0].Config())
	config.BearerToken = token
	return config
}

// send sends a request with headers, NAME: VALUE, to a server.
func (b *browsers) send(s *harness.Server, config *rest.Config, method, path, body string, headers ...string) (int, string, http.Header) {
	b.t.Helper()
	client, err := rest.HTTPClientFor(config)
	b.must(err)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(b.t.Context(), method, s.Config().Host+path, strings.NewReader(body))
	b.must(err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	b.must(err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	b.must(err)
	return resp.StatusCode, string(data), resp.Header
}

// page sends a request as the console's page.
func (b *browsers) page(s *harness.Server, method, path, body, cookie string, headers ...string) (int, string, http.Header) {
	b.t.Helper()
	headers = append([]string{"X-Exeunt-Console: 1", "Sec-Fetch-Site: same-origin", "Content-Type: application/json", "Cookie: " + cookie}, headers...)
	return b.send(s, rest.AnonymousClientConfig(s.Config()), method, path, body, headers...)
}

// byToken and byLink begin a session and return its cookie.
func (b *browsers) byToken(token string) string { return b.signIn(fmt.Sprintf(`{"token":%q}`, token)) }

func (b *browsers) byLink(config *rest.Config) string {
	b.t.Helper()
	var link struct{ Path string }
	harness.Until(b.t, "a link", func() error { // rights are followed within a second
		code, body, _ := b.send(b.servers[0], config, "POST", linkPath, "")
		if code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return json.Unmarshal([]byte(body), &link)
	})
	return b.signIn(fmt.Sprintf(`{"code":%q}`, strings.TrimPrefix(link.Path, "/console/#/signin/")))
}

func (b *browsers) signIn(body string) (cookie string) {
	b.t.Helper()
	harness.Until(b.t, "a session", func() error {
		code, answer, header := b.page(b.servers[0], "POST", "/console/session", body, "")
		if code != http.StatusOK {
			return fmt.Errorf("%d %s", code, answer)
		}
		cookie, _, _ = strings.Cut(header.Get("Set-Cookie"), ";")
		return nil
	})
	return cookie
}

// answers waits until every server answers a session's request with a code.
func (b *browsers) answers(what, cookie string, want int) {
	b.t.Helper()
	for i, s := range b.servers {
		harness.Until(b.t, fmt.Sprintf("%s, server %d", what, i), func() error {
			code, body, _ := b.page(s, "POST", "/console/api/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, cookie)
			if code != want {
				return fmt.Errorf("%d %s, want %d", code, body, want)
			}
			return nil
		})
	}
}

// TestSessionsEndWithTheirCredential: a session of the console is good as long as the
// credential that it was made from, on every replica, and not longer after a restart.
func TestSessionsEndWithTheirCredential(t *testing.T) {
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			b := newBrowsers(t, engine)
			b.raw("POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"anchor"}}`)
			tokenOf := func(token string) func() (string, *rest.Config) {
				return func() (string, *rest.Config) { return token, b.withToken(token) }
			}
			var file bytes.Buffer
			filed := func(name string) string {
				token := name + rand.Text()
				fmt.Fprintf(&file, "sha256:%x,%s,\n", sha256.Sum256([]byte(token)), name)
				b.must(os.WriteFile(b.tokens, file.Bytes(), 0o600))
				return token
			}
			for _, name := range []string{"jane", "joe", "stay", "brief", "certified", "listed"} {
				b.bind("system:exeunt-console", rbacv1.Subject{Kind: "User", Name: name})
			}
			remove := func(path string) func() { return func() { b.raw("DELETE", path, "") } }
			ends := []struct {
				what string
				of   func() (token string, client *rest.Config) // no token: a certificate
				end  func()
			}{
				{"a User is removed", tokenOf(b.user("jane", "")), remove(users + "/jane")},
				{"a User's token is removed", tokenOf(b.user("joe", "")), func() { b.raw("PATCH", users+"/joe", `{"spec":{"tokens":[]}}`) }},
				{"the time of a token is over", tokenOf(b.user("brief", "")), func() {
					soon := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)
					b.raw("PATCH", users+"/brief", fmt.Sprintf(`[{"op":"add","path":"/spec/tokens/0/expires","value":%q}]`, soon))
				}},
				{"the pod of a token is deleted", tokenOf(b.account("podded", &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "web"})),
					remove("/api/v1/namespaces/default/pods/web")},
				{"the Secret of a token is deleted", tokenOf(b.account("secreted", &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: "anchor"})),
					remove("/api/v1/namespaces/default/secrets/anchor")},
				{"a ServiceAccount is made again", tokenOf(b.account("again", nil)), func() {
					b.raw("DELETE", "/api/v1/namespaces/default/serviceaccounts/again", "")
					b.raw("POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"again"}}`)
				}},
				{"the User of a certificate is removed", func() (string, *rest.Config) {
					b.user("certified", "")
					return "", b.certificate("certified")
				}, remove(users + "/certified")},
				{"a line leaves the token file", tokenOf(filed("listed")), func() { b.must(os.WriteFile(b.tokens, nil, 0o600)) }},
			}
			var ended []string
			for _, c := range ends {
				token, client := c.of()
				sessions := map[string]string{"by link": b.byLink(client)}
				if token != "" {
					sessions["by token"] = b.byToken(token)
				}
				for how, cookie := range sessions {
					b.answers(c.what+", before: the session "+how, cookie, http.StatusCreated)
				}
				c.end()
				for how, cookie := range sessions {
					b.answers(c.what+": the session "+how, cookie, http.StatusUnauthorized)
					ended = append(ended, cookie)
				}
			}
			// Groups are those of now; the session of a token that stays good survives a restart.
			stays := b.byToken(b.user("stay", `"listers"`))
			b.bind("view", rbacv1.Subject{Kind: "Group", Name: "listers"})
			lists := func(want int) {
				t.Helper()
				for _, s := range b.servers {
					harness.Until(t, fmt.Sprintf("a list answers %d", want), func() error {
						if code, body, _ := b.page(s, "GET", "/console/api/api/v1/pods", "", stays); code != want {
							return fmt.Errorf("%d %s", code, body)
						}
						return nil
					})
				}
			}
			lists(http.StatusOK)
			b.raw("PATCH", users+"/stay", `{"spec":{"groups":[]}}`)
			lists(http.StatusForbidden)
			for _, s := range b.servers {
				s.Restart()
			}
			for _, cookie := range ended {
				b.answers("after a restart: an ended session", cookie, http.StatusUnauthorized)
			}
			lists(http.StatusForbidden)
			keyed := b.byToken(b.account("keyed", nil))
			b.raw("DELETE", "/api/v1/namespaces/kube-system/secrets/exeunt-service-account-keys", "")
			b.answers("without the key of its token: a session", keyed, http.StatusUnauthorized)
			b.answers("without the keys of service accounts: a User's session", stays, http.StatusCreated)
		})
	}
}

// TestLinksNeedARight: to ask for a link needs a right of its own, a session cannot, and
// nobody can for another user.
func TestLinksNeedARight(t *testing.T) {
	b := newBrowsers(t, harness.SQLite)
	b.bind("system:exeunt-console", rbacv1.Subject{Kind: "User", Name: "jane"})
	jane, joe := b.user("jane", ""), b.user("joe", "")
	var uid struct{ Metadata metav1.ObjectMeta }
	data, err := b.admin.RESTClient().Get().AbsPath(users + "/jane").DoRaw(t.Context())
	b.must(err)
	b.must(json.Unmarshal(data, &uid))
	cookie := b.byLink(b.withToken(jane))
	b.answers("a session by a link", cookie, http.StatusCreated)
	admin := b.servers[0].Config()
	adminLink := b.byLink(admin)
	for name, ask := range map[string]func() (int, string, http.Header){
		"without the right": func() (int, string, http.Header) { return b.send(b.servers[0], b.withToken(joe), "POST", linkPath, "") },
		"as another user": func() (int, string, http.Header) {
			return b.send(b.servers[0], admin, "POST", linkPath, "", "Impersonate-User: jane")
		},
		"as another user, by uid": func() (int, string, http.Header) {
			return b.send(b.servers[0], admin, "POST", linkPath, "", "Impersonate-User: jane", "Impersonate-Uid: "+string(uid.Metadata.UID))
		},
		"from a session": func() (int, string, http.Header) {
			return b.page(b.servers[0], "POST", "/console/api"+linkPath, "", cookie)
		},
		"from a session, with a token": func() (int, string, http.Header) {
			return b.page(b.servers[0], "POST", "/console/api"+linkPath, "", cookie, "Authorization: Bearer "+jane)
		},
		"from an administrator's session": func() (int, string, http.Header) {
			return b.page(b.servers[0], "POST", "/console/api"+linkPath, "", adminLink)
		},
		"from it, as another user": func() (int, string, http.Header) {
			return b.page(b.servers[0], "POST", "/console/api"+linkPath, "", adminLink, "Impersonate-User: jane")
		},
	} {
		if code, body, _ := ask(); code != http.StatusForbidden || strings.Contains(body, "signin") {
			t.Errorf("%s: %d %s, want 403", name, code, body)
		}
	}
	for name, ask := range map[string]func() (int, string, http.Header){
		"without a credential": func() (int, string, http.Header) {
			return b.send(b.servers[0], rest.AnonymousClientConfig(admin), "POST", linkPath, "")
		},
		"with a cookie": func() (int, string, http.Header) { return b.page(b.servers[0], "POST", linkPath, "", adminLink) },
		"with a wrong token": func() (int, string, http.Header) {
			return b.send(b.servers[0], b.withToken("exeunt_x"), "POST", linkPath, "")
		},
		"with a registry's name": func() (int, string, http.Header) {
			return b.send(b.servers[0], rest.AnonymousClientConfig(admin), "POST", linkPath, "", "Authorization: Basic "+jane)
		},
	} {
		if code, body, _ := ask(); code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s, want 401", name, code, body)
		}
	}
}
