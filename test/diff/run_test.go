//go:build diff

package diff

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/test/harness"
	"github.com/exeunt/exeunt/test/peers"
)

// server is one of the two.
type server struct {
	kubeconfig string
	kubectl    string
	home       string // of kubectl's discovery cache
	base       string
	client     *http.Client
}

// startBoth starts our server and a real one, whose kube-controller-manager does what ours
// does itself.
func startBoth(t *testing.T) (ours, theirs *server) {
	t.Helper()
	ours = newServer(t, harness.Start(t, harness.SQLite).Kubeconfig)
	group, err := peers.NewGroup(os.Getenv("EXEUNT_PEERS_BIN"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := group.Stop(); err != nil {
			t.Error(err)
		}
	})
	kubeconfig, err := group.APIServer(t.Context(), "--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
	if err == nil {
		_, err = group.ControllerManager(kubeconfig, "garbage-collector-controller,namespace-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,clusterrole-aggregation-controller")
	}
	if err != nil {
		t.Fatal(err)
	}
	return ours, newServer(t, kubeconfig)
}

func newServer(t *testing.T, kubeconfig string) *server {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	// HTTP/1.1: a bad request does not break a connection that other requests share.
	config.NextProtos = []string{"http/1.1"}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = time.Minute
	t.Cleanup(client.CloseIdleConnections)
	return &server{kubeconfig: kubeconfig, kubectl: harness.KubectlPath(t), home: t.TempDir(), base: config.Host, client: client}
}

// run executes the steps in order and returns one masked answer per step.
func (s *server) run(ctx context.Context, steps []step) ([]any, error) {
	saved := map[string]string{}
	answers := make([]any, len(steps))
	for i, st := range steps {
		answer, err := s.repeat(ctx, fill(st, saved))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", st.name, err)
		}
		for _, save := range st.saves {
			saved[save[0]] = strings.Trim(harness.Field(answer["body"], save[1]), `"`)
		}
		if st.decision {
			hideReason(answer)
		}
		answers[i] = mask(answer)
		if st.only != "" {
			answers[i] = harness.Field(answers[i], st.only)
		}
	}
	return answers, nil
}

// hideReason masks the reason of a review.
func hideReason(answer map[string]any) {
	body, _ := answer["body"].(map[string]any)
	if status, ok := body["status"].(map[string]any); ok && status["reason"] != nil {
		status["reason"] = "masked"
	}
}

// repeat executes a step, again and again if it has a condition.
func (s *server) repeat(ctx context.Context, st step) (map[string]any, error) {
	for deadline := time.Now().Add(harness.Patience); ; {
		answer, err := s.once(ctx, st)
		if err != nil || st.until[0] == "" {
			return answer, err
		}
		got := strings.Trim(harness.Field(any(answer), st.until[0]), `"`)
		if got == st.until[1] {
			return answer, nil
		}
		if time.Now().After(deadline) {
			text, _ := json.Marshal(answer)
			return nil, fmt.Errorf("%s is %q, not %q: %s", st.until[0], got, st.until[1], text)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *server) once(ctx context.Context, st step) (map[string]any, error) {
	if st.method == "$" {
		return s.command(ctx, st)
	}
	body := st.body
	if !st.raw && body != "" {
		data, err := yaml.YAMLToJSON([]byte(body))
		if err != nil {
			return nil, err
		}
		body = string(data)
	}
	request, err := http.NewRequestWithContext(ctx, st.method, s.base+st.target, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "diff")
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, h := range st.headers {
		request.Header.Set(h[0], h[1])
	}
	if st.user != "" {
		request.Header.Set("Impersonate-User", st.user)
	}
	for _, g := range st.groups {
		request.Header.Add("Impersonate-Group", g)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	answer := map[string]any{"code": response.StatusCode, "type": response.Header.Get("Content-Type"), "body": decode(data)}
	for _, name := range []string{"Warning", "Allow", "Retry-After", "Location", "Www-Authenticate"} {
		if values := response.Header.Values(name); len(values) > 0 {
			answer[name] = strings.Join(values, "\n")
		}
	}
	return answer, nil
}

// decode reads a body: one JSON value, several (the events of a watch), or text.
func decode(data []byte) any {
	var values []any
	for decoder := json.NewDecoder(bytes.NewReader(data)); ; {
		var value any
		err := decoder.Decode(&value)
		if err == io.EOF {
			break
		}
		if err != nil {
			return string(data)
		}
		values = append(values, value)
	}
	if len(values) == 1 {
		return values[0]
	}
	return values
}

// command runs kubectl.
func (s *server) command(ctx context.Context, st step) (map[string]any, error) {
	words := strings.Fields(st.target)
	if words[0] != "kubectl" {
		return nil, fmt.Errorf("unknown command %s", words[0])
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.kubectl, words[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(st.body), &stdout, &stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "HOME="+s.home)
	if err := cmd.Run(); cmd.ProcessState == nil {
		return nil, err
	}
	lines := func(b bytes.Buffer) any {
		var all []any
		for line := range strings.Lines(b.String()) {
			all = append(all, strings.TrimRight(line, " \n"))
		}
		return all
	}
	answer := map[string]any{"code": cmd.ProcessState.ExitCode(), "stderr": lines(stderr)}
	if value := decode(stdout.Bytes()); strings.HasPrefix(stdout.String(), "{") {
		answer["body"] = value
	} else {
		answer["stdout"] = lines(stdout)
	}
	return answer, nil
}

// fill replaces ${NAME} by the saved value.
func fill(st step, saved map[string]string) step {
	for name, value := range saved {
		st.target = strings.ReplaceAll(st.target, "${"+name+"}", value)
		st.body = strings.ReplaceAll(st.body, "${"+name+"}", value)
	}
	return st
}
