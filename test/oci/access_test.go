package oci

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exeunt/exeunt/test/harness"
)

// emptyIndex is a manifest that needs no blobs: its push creates a repository.
const (
	indexType  = "application/vnd.oci.image.index.v1+json"
	emptyIndex = `{"schemaVersion":2,"mediaType":"` + indexType + `","manifests":[]}`
)

// accessFlow is a server whose audit log records every create, and users with few rights.
type accessFlow struct {
	repositoryFlow
	log    string // the audit log
	tokens map[string]string
}

func eachAccessFlow(t *testing.T, test func(f accessFlow), flags ...string) {
	t.Helper()
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			dir := t.TempDir()
			policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
			if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n  verbs: [create]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			s := harness.Start(t, engine, append([]string{"--audit-policy-file", policy, "--audit-log-path", log}, flags...)...)
			test(accessFlow{repositoryFlow{t, s, s.Registry() + "/"}, log, map[string]string{}})
		})
	}
}

// apply applies objects in YAML.
func (f accessFlow) apply(yaml string) {
	f.Helper()
	if r := f.s.KubectlCommand(f, harness.Command{Args: []string{"apply", "-f", "-"}, Stdin: yaml}); r.Code != 0 {
		f.Fatalf("apply: %s", r.Stderr)
	}
}

// user adds a user that may use verbs on repositories, everywhere.
func (f accessFlow) user(name, verbs string) {
	f.Helper()
	kubeconfig, err := clientcmd.Load([]byte(f.exeunt("user", "add", name)))
	if err != nil {
		f.Fatal(err)
	}
	for _, u := range kubeconfig.AuthInfos {
		f.tokens[name] = u.Token
	}
	f.kubectl("create", "clusterrole", name, "--verb="+verbs, "--resource=repositories.registry.exeunt.dev")
	f.kubectl("create", "clusterrolebinding", name, "--clusterrole="+name, "--user="+name)
}

// send sends a request to the registry as a user. A body is an index.
func (f accessFlow) send(user, method, path, body string) (int, string, http.Header) {
	f.Helper()
	req, err := http.NewRequest(method, "http://"+f.s.Registry()+"/v2/"+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	req.SetBasicAuth(user, f.tokens[user])
	if body != "" {
		req.Header.Set("Content-Type", indexType)
	}
	req.Header.Set("User-Agent", "access-test")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		f.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		f.Fatal(err)
	}
	return answer.StatusCode, string(text), answer.Header
}

// wants sends a request until its answer has this status and text: changes of roles and
// policies apply within a second.
func (f accessFlow) wants(code int, text, user, method, path, body string) {
	f.Helper()
	harness.Until(f, method+" "+path, func() error {
		if got, said, _ := f.send(user, method, path, body); got != code || !strings.Contains(said, text) {
			return fmt.Errorf("%s: answered %d %s, want %d and %q", user, got, said, code, text)
		}
		return nil
	})
}

// refuses waits until the API refuses a command, with this text. Its input is a Repository.
func (f accessFlow) refuses(text string, args ...string) {
	f.Helper()
	harness.Until(f, text, func() error {
		r := f.s.KubectlCommand(f, harness.Command{
			Args: args, Stdin: "apiVersion: registry.exeunt.dev/v1\nkind: Repository\nmetadata: {name: secret, namespace: shop}\n",
		})
		if r.Code == 0 || !strings.Contains(r.Stderr, text) {
			return errors.New(r.Stdout + r.Stderr)
		}
		return nil
	})
}

// denied expects that every kind of push to a repository is refused, with this text, and
// that none leaves an object.
func (f accessFlow) denied(text, user, path string) {
	f.Helper()
	d := digest.FromString("x").String()
	f.wants(403, text, user, "POST", path+"/blobs/uploads/", "")
	for _, start := range []string{"", "?digest=" + d, "?mount=" + d, "?mount=" + d + "&from=shop/web"} {
		f.deniedOnce(text, user, "POST", path+"/blobs/uploads/"+start, "")
	}
	f.deniedOnce(text, user, "PUT", path+"/manifests/v1", emptyIndex)
	namespace, name, _ := strings.Cut(path, "/")
	if r := f.s.Kubectl(f, "get", "repository", name, "-n", namespace); r.Code == 0 {
		f.Errorf("%s exists: %s", path, r.Stdout)
	}
}

func (f accessFlow) deniedOnce(text, user, method, path, body string) {
	f.Helper()
	if code, said, _ := f.send(user, method, path, body); code != 403 || !strings.Contains(said, `"DENIED"`) || !strings.Contains(said, text) {
		f.Errorf("%s %s: %d %s, want DENIED and %q", method, path, code, said, text)
	}
}

func (f accessFlow) noNamespace(name string) {
	f.Helper()
	if r := f.s.Kubectl(f, "get", "namespace", name); r.Code == 0 {
		f.Errorf("namespace %s exists: %s", name, r.Stdout)
	}
}

// created returns the creates in the audit log that the registry caused: user, resource,
// namespace/name and code.
func (f accessFlow) created() (lines []string) {
	f.Helper()
	text, err := os.ReadFile(f.log)
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Verb, UserAgent string
			User            struct{ Username string }
			SourceIPs       []string
			ObjectRef       struct{ Resource, Namespace, Name, Subresource string }
			ResponseStatus  struct{ Code int }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			f.Fatal(err)
		}
		if e.Verb == "create" && e.UserAgent == "access-test" {
			if !slices.Equal(e.SourceIPs, []string{"127.0.0.1"}) {
				f.Errorf("the request came from %v", e.SourceIPs)
			}
			lines = append(lines, fmt.Sprint(e.User.Username, " ", e.ObjectRef.Resource, " ", e.ObjectRef.Namespace, "/", e.ObjectRef.Name, " ", e.ResponseStatus.Code))
		}
	}
	return lines
}

// policy refuses creates of a resource whose name matches, with a message.
func policy(name, group, resource, expression, message string) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: ["%[2]s"], apiVersions: ["*"], operations: [CREATE], resources: [%[3]s]}]
  validations: [{expression: %[4]q, message: %[5]q}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
---
`, name, group, resource, expression, message)
}

// TestPushNeedsRights: the objects that a push creates need the rights of the client, pass
// admission and quotas, and are in the audit log as the client's.
func TestPushNeedsRights(t *testing.T) {
	eachAccessFlow(t, func(f accessFlow) {
		f.kubectl("create", "namespace", "shop")
		f.user("ci", "create")
		f.user("patcher", "update")
		f.apply(policy("no-secrets", "registry.exeunt.dev", "repositories", "!object.metadata.name.startsWith('secret')", "not this name") +
			policy("teams", "", "namespaces", "has(object.metadata.labels) && 'team' in object.metadata.labels || !object.metadata.name.startsWith('fresh')", "no team"))

		f.refuses("no team", "create", "namespace", "fresh", "--dry-run=server")
		f.refuses("not this name", "create", "--dry-run=server", "-f", "-")

		// Rights. What exists already needs the rights that it has always needed.
		const noRight = `User \"ci\" cannot create resource \"namespaces\" in API group \"\" at the cluster scope`
		f.denied(noRight, "ci", "fresh/web")
		f.denied("kubectl create namespace fresh", "ci", "fresh/web")
		f.denied("kube-evil", "ci", "kube-evil/web")
		f.denied(`User \"patcher\" cannot create resource \"repositories\"`, "patcher", "shop/web")
		f.wants(201, "", "ci", "PUT", "shop/web/manifests/v1", emptyIndex)
		f.wants(201, "", "ci", "PUT", "shop/web/manifests/v2", emptyIndex)
		f.wants(201, "", "patcher", "PUT", "shop/web/manifests/v3", emptyIndex)
		f.noNamespace("fresh")
		f.noNamespace("kube-evil")

		// Admission.
		f.denied("not this name", "ci", "shop/secret")
		f.kubectl("create", "clusterrole", "ci-namespaces", "--verb=create", "--resource=namespaces")
		f.kubectl("create", "clusterrolebinding", "ci-namespaces", "--clusterrole=ci-namespaces", "--user=ci")
		f.denied("no team", "ci", "fresh/web")
		f.denied("reserved", "ci", "kube-evil/web")
		f.noNamespace("fresh")
		f.noNamespace("kube-evil")
		f.wants(201, "", "ci", "PUT", "new/web/manifests/v1", emptyIndex)

		// Quota.
		f.kubectl("create", "quota", "one", "--hard=count/repositories.registry.exeunt.dev=1", "-n", "shop")
		f.denied("exceeded quota", "ci", "shop/second")
		f.wants(202, "", "ci", "POST", "shop/web/blobs/uploads/", "")

		f.s.Stop() // writes the last events
		got := f.created()
		for _, want := range []string{
			"ci namespaces / 403", "ci namespaces /fresh 422", "ci namespaces /new 201", "ci repositories new/web 201",
			"ci repositories shop/web 201", "ci repositories shop/secret 422", "ci repositories shop/second 403",
		} {
			if !slices.Contains(got, want) {
				f.Errorf("the audit log has no %q but %q", want, slices.Compact(slices.Sorted(slices.Values(got))))
			}
		}
		if n := len(slices.DeleteFunc(got, func(s string) bool { return s != "ci repositories shop/web 201" })); n != 1 {
			f.Errorf("shop/web was created %d times", n)
		}
	})
}

// TestFirstPushKilled: the server is killed between the namespace and the Repository that
// a push creates. The namespace is left, empty, and the next push goes on. Then the namespace
// is deleted at the same moment: the push is denied, and leaves nothing.
func TestFirstPushKilled(t *testing.T) {
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			s := harness.Start(t, engine)
			f := accessFlow{repositoryFlow{t, s, s.Registry() + "/"}, "", map[string]string{harness.RegistryUser: s.RegistryToken()}}
			asked, answer := f.holdCreates("repositories", "registry.exeunt.dev")
			pushed := make(chan string, 1)
			push := func() {
				req, err := http.NewRequest("PUT", "http://"+s.Registry()+"/v2/fair/web/manifests/v1", strings.NewReader(emptyIndex))
				if err != nil {
					t.Error(err)
				}
				req.Header.Set("Content-Type", indexType)
				reply, err := s.RegistryHTTP().Do(req)
				if err != nil {
					pushed <- "no answer"
					return
				}
				defer reply.Body.Close()
				text, _ := io.ReadAll(reply.Body)
				pushed <- fmt.Sprint(reply.StatusCode, " ", string(text))
			}
			go push()
			<-asked
			s.Kill()
			answer <- true
			if got := <-pushed; got != "no answer" {
				t.Errorf("a killed server answered %s", got)
			}
			s.Start()
			f.kubectl("get", "namespace", "fair")
			if got := f.kubectl("get", "repositories", "-A", "-o", "name"); got != "" {
				t.Errorf("there are repositories: %s", got)
			}
			go push()
			<-asked
			answer <- true
			if got := <-pushed; !strings.HasPrefix(got, "201 ") {
				t.Errorf("the push after the crash: %s", got)
			}
			f.kubectl("delete", "namespace", "fair", "--timeout=60s")

			go push()
			<-asked
			f.kubectl("delete", "namespace", "fair", "--timeout=60s")
			answer <- true
			if got := <-pushed; !strings.HasPrefix(got, "403 ") || !strings.Contains(got, "namespace fair is being deleted") {
				t.Errorf("the push while its namespace was deleted: %s", got)
			}
			f.noNamespace("fair")
			if got := f.kubectl("get", "repositories", "-A", "-o", "name"); got != "" {
				t.Errorf("there are repositories: %s", got)
			}
		})
	}
}

// holdCreates lets a webhook wait in each create of a resource: it says so to asked, and
// answers what answer says.
func (f accessFlow) holdCreates(resource, group string) (asked <-chan struct{}, answer chan<- bool) {
	f.Helper()
	began, decide := make(chan struct{}), make(chan bool)
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			f.Error(err)
		}
		began <- struct{}{}
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":%t}}`, review.Request.UID, <-decide)
	}))
	f.Cleanup(hook.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	f.apply(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hold}
webhooks:
- name: hold.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 30
  clientConfig: {url: %q, caBundle: %s}
  rules: [{apiGroups: [%s], apiVersions: ["*"], operations: [CREATE], resources: [%s]}]
`, hook.URL, base64.StdEncoding.EncodeToString(bundle), group, resource))
	f.awaitHook(began, decide)
	return began, decide
}

// awaitHook waits until the webhook is asked: configurations are followed within a second.
func (f accessFlow) awaitHook(asked <-chan struct{}, answer chan<- bool) {
	f.Helper()
	harness.Until(f, "the webhook is asked", func() error {
		done := make(chan harness.Result, 1)
		go func() {
			done <- f.s.KubectlCommand(f, harness.Command{
				Args:  []string{"create", "--dry-run=server", "-f", "-"},
				Stdin: "apiVersion: registry.exeunt.dev/v1\nkind: Repository\nmetadata: {name: probe, namespace: default}\n",
			})
		}()
		select {
		case <-asked:
			answer <- true
			<-done
			return nil
		case <-done:
			return errors.New("it is not")
		}
	})
}
