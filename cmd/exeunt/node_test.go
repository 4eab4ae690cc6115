package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/broker/mesh/agent"
)

// TestNodeToken: the request and the output of each subcommand.
func TestNodeToken(t *testing.T) {
	const issued = `{"id":"aaaa","project":"shop","text":"exb_aaaa_BBBB","state":"issued","createdAt":"2020-01-01T00:00:00Z","createdBy":"jo","expiresAt":"2099-01-01T00:00:00Z"}`
	const consumed = `{"id":"cccc","project":"shop","state":"consumed","createdAt":"2020-01-01T00:00:00Z","createdBy":"","expiresAt":"2020-01-01T01:00:00Z","node":"web","leftHow":"drained: it said so"}`
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		asked = strings.TrimSpace(req.Method + " " + req.URL.String() + " " + string(body))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case req.Method == "GET":
			fmt.Fprintf(w, `{"items":[%s,%s]}`, issued, consumed)
		case strings.HasSuffix(req.URL.Path, "/gone"):
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound","message":"there is no token \"gone\""}`)
		case strings.HasSuffix(req.URL.Path, "/cccc"):
			fmt.Fprint(w, consumed)
		default:
			fmt.Fprint(w, issued)
		}
	}))
	defer server.Close()
	kubeconfig := kubeconfigFor(t, server.URL)
	for _, tt := range []struct {
		args  string
		asked string
		want  string // part of the output, or of the error
		fails bool
	}{
		{"create", `POST /exeunt/mesh/tokens {"project":"default","ttlSeconds":3600}`, "exeunt node join --server " + server.URL + " --token exb_aaaa_BBBB\n", false},
		{"create -n bank --ttl 30m", `POST /exeunt/mesh/tokens {"project":"bank","ttlSeconds":1800}`, "With token aaaa one node can join project shop until", false},
		{"create -o json", `POST /exeunt/mesh/tokens {"project":"default","ttlSeconds":3600}`, `"text": "exb_aaaa_BBBB"`, false},
		{"create -o yaml", `POST /exeunt/mesh/tokens {"project":"default","ttlSeconds":3600}`, "text: exb_aaaa_BBBB\n", false},
		{"create -o name", "", "want json, yaml, or", true},
		{"list", "GET /exeunt/mesh/tokens?project=default", "aaaa   shop      issued     -      in ", false},
		{"list", "GET /exeunt/mesh/tokens?project=default", "cccc   shop      consumed   web    -  ", false},
		{"list -A", "GET /exeunt/mesh/tokens", "drained: it said so", false},
		{"list -o json", "GET /exeunt/mesh/tokens?project=default", `"state": "consumed"`, false},
		{"list -o name", "GET /exeunt/mesh/tokens?project=default", "aaaa\ncccc\n", false},
		{"revoke aaaa", "DELETE /exeunt/mesh/tokens/aaaa", "token aaaa is issued", false},
		{"revoke aaaa -o yaml", "DELETE /exeunt/mesh/tokens/aaaa", "state: issued\n", false},
		{"revoke cccc", "DELETE /exeunt/mesh/tokens/cccc", "kubectl delete meshnode web -n shop", true},
		{"revoke gone", "DELETE /exeunt/mesh/tokens/gone", `there is no token "gone"`, true},
		{"revoke", "", "token revoke takes 1 argument, not 0 arguments: ID, as", true},
	} {
		asked = ""
		var out bytes.Buffer
		cmd := newNode()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(append(append([]string{"token"}, strings.Fields(tt.args)...), "--kubeconfig", kubeconfig))
		err := cmd.ExecuteContext(t.Context())
		text := out.String()
		if err != nil {
			text += err.Error()
		}
		if (err != nil) != tt.fails || !strings.Contains(text, tt.want) || asked != tt.asked {
			t.Errorf("%s: asked %q, error %v, output:\n%s\nwant %q", tt.args, asked, err, out.String(), tt.want)
		}
	}
}

// TestJoined: a node that has joined is one line in json and name, and nothing in text.
func TestJoined(t *testing.T) {
	for format, want := range map[string]string{
		"":     "",
		"json": `{"project":"shop","name":"web","uid":"u1"}` + "\n",
		"name": "meshnode.mesh.exeunt.dev/web\n",
	} {
		var out strings.Builder
		if err := (&output{format: format, oneLine: true}).print(&out, joined(agent.Node{Project: "shop", Name: "web", UID: "u1"})); err != nil || out.String() != want {
			t.Errorf("-o %q: %v, printed %q; want %q", format, err, out.String(), want)
		}
	}
}

func TestNodeJoinRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                                  "--server: say where the server is",
		"--server http://x":                 "want https://HOST:PORT",
		"--server https://x":                "--token: this node has not enrolled yet",
		"--token a --token-file b":          "one of the two is enough",
		"--token-file nowhere":              "--token-file: open nowhere",
		"--server https://x --listen :0":    "--listen and --forward belong together",
		"--server https://x --token a_b":    "not a bootstrap token",
		"--server https://x more":           "unknown command",
		"--server https://x --ca-hash abcd": "this node has not enrolled yet",
	} {
		code, _, stderr := run(t, append([]string{"node", "join"}, strings.Fields(args)...)...)
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %s; want %q", args, code, stderr, want)
		}
	}
}
