package access

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"gopkg.in/go-jose/go-jose.v2"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/rbac"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func indented(server *httptest.Server, by string) string {
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return by + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+by)
}

// TestAuthenticationConfiguration: tokens of several issuers are accepted, with names and rules in
// CEL. Each token is judged by the rules of its own issuer; names of the system are refused.
func TestAuthenticationConfiguration(t *testing.T) {
	t.Parallel()
	first, second := newProvider(t), newProvider(t)
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n"
	for _, p := range []struct {
		*provider
		mapping string
	}{
		{first, "    username: {expression: '\"first:\" + claims.sub'}\n    groups: {expression: 'dyn(claims.roles).filter(r, r != \"none\")'}\n  userValidationRules:\n  - {expression: '!user.username.endsWith(\"mallory\")', message: refused}\n"},
		{second, "    username: {claim: sub, prefix: ''}\n  claimValidationRules:\n  - {expression: 'claims.tenant == \"a\"', message: another tenant}\n"},
	} {
		text += "- issuer:\n    url: " + p.URL + "\n    audiences: [exeunt, other]\n    audienceMatchPolicy: MatchAny\n    certificateAuthority: |\n" + indented(p.Server, "      ") +
			"\n  claimMappings:\n" + p.mapping
	}
	all, err := OpenTokens(t.Context(), TokenOptions{Config: writeFile(t, text), Own: "https://own.example"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	token := func(p *provider, sub string, more map[string]any) string {
		claims := map[string]any{"iss": p.URL, "aud": "exeunt", "sub": sub, "iat": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(time.Hour).Unix()}
		for name, value := range more {
			claims[name] = value
		}
		return sign(t, jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: p.key, KeyID: "1"}}, claims)
	}
	roles := map[string]any{"roles": []string{"dev", "none"}}
	response := awaitProvider(t, all[0], token(first, "jane", roles))
	if name, groups := response.User.GetName(), strings.Join(response.User.GetGroups(), " "); name != "first:jane" || groups != "dev" {
		t.Errorf("the token names %q in %q", name, groups)
	}
	if name := awaitProvider(t, all[1], token(second, "jane", map[string]any{"tenant": "a"})).User.GetName(); name != "jane" {
		t.Errorf("the token names %q", name)
	}
	for what, refused := range map[string]string{
		"a user that a rule refuses": token(first, "mallory", roles),
		"a claim of another tenant":  token(second, "jane", map[string]any{"tenant": "b"}),
		"a name of the system":       token(second, "system:admin", map[string]any{"tenant": "a"}),
		"a group of the system":      token(first, "jane", map[string]any{"roles": []string{"system:masters"}}),
		"another audience":           token(second, "jane", map[string]any{"tenant": "a", "aud": "x"}),
	} {
		for _, issuer := range all {
			if _, ok, _ := issuer.AuthenticateToken(t.Context(), refused); ok {
				t.Errorf("accepted: %s", what)
			}
		}
	}
	for what, bad := range map[string]string{
		"an unknown field":         strings.Replace(text, "audiences:", "audience:", 1),
		"a rule that is no CEL":    strings.Replace(text, "claims.sub'", "claims.'", 1),
		"this server's own issuer": strings.Replace(text, first.URL, "https://own.example", 1),
		"anonymous clients":        text + "anonymous: {enabled: true}\n",
		"another kind":             "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: []\n",
	} {
		if _, err := OpenTokens(t.Context(), TokenOptions{Config: writeFile(t, bad), Own: "https://own.example"}, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("accepted: %s", what)
		}
	}
}

// reviewer is an authorization webhook. It denies the verb "delete", allows users whose name begins
// with "friend", and has no opinion of the others.
type reviewer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // guarded by mu
}

func newReviewer(t *testing.T) *reviewer {
	r := &reviewer{}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		r.asked = append(r.asked, review.Spec.User)
		r.mu.Unlock()
		review.Status = authorizationv1.SubjectAccessReviewStatus{
			Allowed: strings.HasPrefix(review.Spec.User, "friend"), Denied: review.Spec.ResourceAttributes.Verb == "delete", Reason: "so it is",
		}
		if review.Status.Denied {
			review.Status.Allowed = false
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *reviewer) config(t *testing.T, order ...string) string {
	kubeconfig := writeFile(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],
"users":[{"name":"c","user":{}}],"clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}]}`, r.URL))
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	for _, name := range order {
		if name == "rbac" {
			text += "- {type: RBAC, name: rbac}\n"
			continue
		}
		text += "- type: Webhook\n  name: " + name + "\n  webhook: {" + hookSettings +
			", connectionInfo: {type: KubeConfigFile, kubeConfigFile: " + kubeconfig + "}, matchConditions: [{expression: 'request.user != \"unasked\"'}]}\n"
	}
	return writeFile(t, text)
}

const hookSettings = "timeout: 3s, subjectAccessReviewVersion: v1, matchConditionSubjectAccessReviewVersion: v1, failurePolicy: Deny, authorizedTTL: 5m, unauthorizedTTL: 30s"

// TestAuthorizationConfiguration: a webhook before RBAC decides first, one after it only what RBAC
// leaves open. It is never asked about who may do everything, nor about what its conditions leave
// out, and if it fails nothing is allowed.
func TestAuthorizationConfiguration(t *testing.T) {
	t.Parallel()
	hook := newReviewer(t)
	decide := func(order []string, name string, groups []string, verb string) (authorizer.Decision, error) {
		t.Helper()
		all, err := OpenAuthorizers(hook.config(t, order...))
		if err != nil {
			t.Fatal(err)
		}
		control := NewControl(directory.Of(rbac.Objects{}), Config{Authorizers: all})
		decision, _, err := control.Authorizer().Authorize(t.Context(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: name, Groups: groups}, Verb: verb, Resource: "configmaps", APIVersion: "v1", Namespace: "shop", ResourceRequest: true,
		})
		return decision, err
	}
	before, after := []string{"hook", "rbac"}, []string{"rbac", "hook"}
	masters := []string{user.SystemPrivilegedGroup}
	for _, c := range []struct {
		order  []string
		name   string
		groups []string
		verb   string
		want   authorizer.Decision
	}{
		{before, "friend", nil, "get", authorizer.DecisionAllow},
		{before, "friend", nil, "delete", authorizer.DecisionDeny},
		{after, "friend", nil, "get", authorizer.DecisionAllow},
		{after, "stranger", nil, "get", authorizer.DecisionNoOpinion},
		{before, "unasked", nil, "delete", authorizer.DecisionNoOpinion},
		{before, "root", masters, "delete", authorizer.DecisionAllow},
	} {
		if got, err := decide(c.order, c.name, c.groups, c.verb); got != c.want || err != nil {
			t.Errorf("%s may %s with %v: %v, %v, want %v", c.name, c.verb, c.order, got, err, c.want)
		}
	}
	hook.mu.Lock()
	asked := strings.Join(hook.asked, " ")
	hook.mu.Unlock()
	if strings.Contains(asked, "root") || strings.Contains(asked, "unasked") {
		t.Errorf("the webhook was asked about %s", asked)
	}
	hook.Close()
	if got, _ := decide(after, "friend", nil, "get"); got == authorizer.DecisionAllow {
		t.Error("allowed by a webhook that does not answer")
	}
	for what, order := range map[string][]string{"no RBAC": {"hook"}, "RBAC twice": {"rbac", "rbac"}, "one name twice": {"hook", "hook", "rbac"}} {
		if _, err := OpenAuthorizers(hook.config(t, order...)); err == nil {
			t.Errorf("accepted: %s", what)
		}
	}
}

// TestWebhookSettings: a failing webhook before RBAC denies, or leaves the decision to RBAC, as its failurePolicy says: if it
// refuses, takes longer than its timeout, or answers without end. Its answers are remembered for as long as is set, and not
// where that is switched off.
func TestWebhookSettings(t *testing.T) {
	t.Parallel()
	hook := newReviewer(t)
	answer := hook.Config.Handler
	open := func(settings ...string) *Control {
		t.Helper()
		text, err := os.ReadFile(hook.config(t, "hook", "rbac"))
		if err != nil {
			t.Fatal(err)
		}
		all, err := OpenAuthorizers(writeFile(t, strings.NewReplacer(settings...).Replace(string(text))))
		if err != nil {
			t.Fatal(err)
		}
		return NewControl(holding([]string{"get - configmaps *"}).directory, Config{Authorizers: all})
	}
	decide := func(c *Control, name, verb string) authorizer.Decision {
		decision, _, err := c.Authorizer().Authorize(t.Context(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: name}, Verb: verb, Resource: "configmaps", APIVersion: "v1", Namespace: "shop", ResourceRequest: true,
		})
		t.Logf("%s may %s: %v, %v", name, verb, decision, err)
		return decision
	}

	for what, fail := range map[string]func(http.ResponseWriter, *http.Request){
		"refuses":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"takes long": func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() },
		"answers without end": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte(" "), providerAnswer))
		},
	} {
		hook.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			body, _ := io.ReadAll(req.Body)
			fail(w, req)
			req.Body = io.NopCloser(bytes.NewReader(body))
			answer.ServeHTTP(w, req)
		})
		for policy, want := range map[string]map[string]authorizer.Decision{
			"Deny":      {"jane": authorizer.DecisionDeny, "friend": authorizer.DecisionDeny},
			"NoOpinion": {"jane": authorizer.DecisionAllow, "friend": authorizer.DecisionNoOpinion},
		} {
			c := open("failurePolicy: Deny", "failurePolicy: "+policy, "timeout: 3s", "timeout: 300ms")
			for name, want := range want {
				if got := decide(c, name, "get"); got != want {
					t.Errorf("failurePolicy %s, a webhook that %s: %s: %v, want %v", policy, what, name, got, want)
				}
			}
		}
	}
	hook.Config.Handler = answer

	for settings, want := range map[string][2]int{ // how often two equal questions are asked, if the answer is yes, and if it is no
		"authorizedTTL: 5m, unauthorizedTTL: 5m":                                   {1, 1},
		"authorizedTTL: 5m, unauthorizedTTL: 1ns":                                  {1, 2},
		"authorizedTTL: 1ns, unauthorizedTTL: 5m":                                  {2, 1},
		"authorizedTTL: 5m, unauthorizedTTL: 5m, cacheAuthorizedRequests: false":   {2, 1},
		"authorizedTTL: 5m, unauthorizedTTL: 5m, cacheUnauthorizedRequests: false": {1, 2},
	} {
		c := open("authorizedTTL: 5m, unauthorizedTTL: 30s", settings)
		for i, verb := range []string{"get", "delete"} {
			hook.mu.Lock()
			hook.asked = nil
			hook.mu.Unlock()
			first, second := decide(c, "friend", verb), decide(c, "friend", verb)
			hook.mu.Lock()
			asked := len(hook.asked)
			hook.mu.Unlock()
			if first != second || asked != want[i] {
				t.Errorf("%s: %s is answered %v and %v by %d questions, want %d", settings, verb, first, second, asked, want[i])
			}
		}
	}
}

// TestConfigurationsThatCannotBeUsed are errors: without the file there is no server, and not one that asks RBAC alone.
func TestConfigurationsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	hook := newReviewer(t)
	text, err := os.ReadFile(hook.config(t, "hook", "rbac"))
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[[2]string]string{
		{"kubeConfigFile: ", "kubeConfigFile: /nowhere"}:                         "nowhere",
		{"type: KubeConfigFile, kubeConfigFile: [^}]*", "type: InClusterConfig"}: "only KubeConfigFile can be used",
		{"failurePolicy", "failPolicy"}:                                          "failPolicy",
	} {
		_, err := OpenAuthorizers(writeFile(t, regexp.MustCompile(change[0]).ReplaceAllString(string(text), change[1])))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s: %v, want %q", change[1], err, want)
		}
	}
	if _, err := OpenAuthorizers(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("accepted: no file")
	}
	for what, o := range map[string]TokenOptions{
		"no file":     {Config: filepath.Join(t.TempDir(), "none")},
		"no CA":       {OIDC: OIDCOptions{Issuer: "https://example.com", ClientID: "x", CAFile: filepath.Join(t.TempDir(), "none")}},
		"an empty CA": {OIDC: OIDCOptions{Issuer: "https://example.com", ClientID: "x", CAFile: writeFile(t, "x")}},
	} {
		if _, err := OpenTokens(t.Context(), o, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("accepted: %s", what)
		}
	}
}
