// Package mesh_test runs real node agents against the real server: agents and server join,
// are killed, restart, drain and leave.
package mesh_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// each runs a test on both engines. The server has a namespace "shop", and its nodes send
// a heartbeat every second.
func each(t *testing.T, test func(t *testing.T, s *harness.Server)) {
	t.Helper()
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			s := harness.Start(t, engine, "--mesh-heartbeat", "1s")
			kubectl(t, s, "create", "namespace", "shop")
			test(t, s)
		})
	}
}

// kubectl runs a command in namespace shop that must succeed.
func kubectl(t *testing.T, s *harness.Server, args ...string) string {
	t.Helper()
	r := s.Kubectl(t, append([]string{"-n", "shop"}, args...)...)
	if r.Code != 0 {
		t.Fatalf("kubectl %s: %s%s", strings.Join(args, " "), r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// field reads a field of a node.
func field(t *testing.T, s *harness.Server, node, path string) string {
	t.Helper()
	return kubectl(t, s, "get", "meshnode", node, "-o", "jsonpath={"+path+"}")
}

func awaitPhase(t *testing.T, s *harness.Server, node, phase string) {
	t.Helper()
	kubectl(t, s, "wait", "--for=jsonpath={.status.phase}="+phase, "meshnode/"+node, "--timeout=60s")
}

// TestLife: two nodes join; one is killed and restarts as the same node; the server is
// killed and restarts; a node is deleted while it has a connection, its peer learns of it,
// and the node is gone when the connection has ended.
func TestLife(t *testing.T) {
	each(t, func(t *testing.T, s *harness.Server) {
		alpha := join(t, s, "shop", "alpha", "--listen", "127.0.0.1:0", "--forward", echo(t), "--drain-timeout", "60s")
		beta := join(t, s, "shop", "beta")
		alpha.sees("beta", "Ready")
		table := kubectl(t, s, "get", "meshnodes")
		if !strings.HasPrefix(table, "NAME    READY   PHASE   ADDRESS") || strings.Count(table, "True    Ready") != 2 {
			t.Errorf("kubectl get meshnodes:\n%s", table)
		}
		uid := field(t, s, "beta", ".metadata.uid")

		beta.kill()
		awaitPhase(t, s, "beta", "Unreachable")
		alpha.sees("beta", "Unreachable")
		beta.start()
		kubectl(t, s, "wait", "--for=condition=Ready", "meshnode/beta", "--timeout=60s")
		if got := field(t, s, "beta", ".metadata.uid"); got != uid {
			t.Errorf("beta came back as another: %s, not %s", got, uid)
		}

		s.Kill()
		s.Start()
		conn, err := net.Dial("tcp", field(t, s, "alpha", ".spec.address"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := talk(conn); err != nil {
			t.Fatal(err)
		}
		deleted := make(chan harness.Result, 1)
		go func() { deleted <- s.Kubectl(t, "-n", "shop", "delete", "meshnode", "alpha") }()
		beta.sees("alpha", "Draining") // also after the restart of the server
		awaitPhase(t, s, "alpha", "Draining")
		if err := talk(conn); err != nil {
			t.Errorf("the connection of a draining node: %v", err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if r := <-deleted; r.Code != 0 {
			t.Errorf("kubectl delete: %s", r.Stderr)
		}
		alpha.ends(0)
		beta.sees("alpha", "")
		if events := kubectl(t, s, "get", "events"); !strings.Contains(events, "drained: the node said that it had finished") {
			t.Errorf("events:\n%s", events)
		}

		beta.signal(syscall.SIGTERM)
		beta.ends(0)
		if left := kubectl(t, s, "get", "meshnodes", "-o", "name"); left != "" {
			t.Errorf("left: %s", left)
		}
		s.Alive()
	})
}

// TestUnreachable: the server removes a node that does not answer at its deadline,
// although it was killed in between, and records that. When the agent wakes up, it learns
// that its node is gone.
func TestUnreachable(t *testing.T) {
	each(t, func(t *testing.T, s *harness.Server) {
		alpha := join(t, s, "shop", "alpha", "--drain-timeout", "10s")
		alpha.signal(syscall.SIGSTOP)
		awaitPhase(t, s, "alpha", "Unreachable")
		kubectl(t, s, "delete", "meshnode", "alpha", "--wait=false")
		awaitPhase(t, s, "alpha", "Draining")
		s.Kill()
		s.Start()
		kubectl(t, s, "wait", "--for=delete", "meshnode/alpha", "--timeout=60s")
		const want = "unreachable, no heartbeat since"
		if list := exeunt(t, s, "node", "token", "list", "-n", "shop"); !strings.Contains(list, want) {
			t.Errorf("tokens:\n%s", list)
		}
		if events := kubectl(t, s, "get", "events"); !strings.Contains(events, want) || !strings.Contains(events, "Warning") {
			t.Errorf("events:\n%s", events)
		}
		alpha.signal(syscall.SIGCONT)
		alpha.ends(1)
		if !strings.Contains(alpha.said(), "does not know this node any more") {
			t.Errorf("the agent said:\n%s", alpha.said())
		}
	})
}

// TestNamespace: a namespace that is deleted drains its nodes before it goes, and its
// tokens go with it.
func TestNamespace(t *testing.T) {
	each(t, func(t *testing.T, s *harness.Server) {
		alpha := join(t, s, "shop", "alpha", "--on-drain", "echo the command ran in $EXEUNT_PROJECT")
		kubectl(t, s, "delete", "namespace", "shop", "--timeout=60s")
		alpha.ends(0)
		if !strings.Contains(alpha.said(), "the command ran in shop") {
			t.Errorf("the agent said:\n%s", alpha.said())
		}
		if list := exeunt(t, s, "node", "token", "list", "-A", "-o", "json"); !strings.Contains(list, `"items": []`) {
			t.Errorf("tokens: %s", list)
		}
	})
}

// TestKills: agents and server are killed at many moments of an enrolment and a leave. In
// every case each machine ends up as exactly one node, and at the end as none.
func TestKills(t *testing.T) {
	each(t, func(t *testing.T, s *harness.Server) {
		alpha := join(t, s, "shop", "alpha")
		uid := field(t, s, "alpha", ".metadata.uid")
		for i := range 4 {
			if i%2 == 0 {
				alpha.kill()
				alpha.start()
			} else {
				s.Kill()
				s.Start()
			}
			kubectl(t, s, "wait", "--for=condition=Ready", "meshnode/alpha", "--timeout=60s")
			if got := field(t, s, "alpha", ".metadata.uid"); got != uid {
				t.Fatalf("alpha is another: %s, not %s", got, uid)
			}
		}
		// An agent that is killed while it leaves continues to leave after a restart.
		alpha.signal(syscall.SIGTERM)
		alpha.kill()
		kept, err := os.ReadFile(filepath.Join(alpha.state, "node.json"))
		if err == nil {
			back := strings.Count(alpha.said(), "back in the mesh")
			alpha.start()
			if !strings.Contains(string(kept), `"leaving": true`) { // the kill came first
				harness.Until(t, "alpha to be back", func() error {
					if strings.Count(alpha.said(), "back in the mesh") == back {
						return errors.New(alpha.said())
					}
					return nil
				})
				alpha.signal(syscall.SIGTERM)
			}
			alpha.ends(0)
		}
		if left := kubectl(t, s, "get", "meshnodes", "-o", "name"); left != "" {
			t.Errorf("left: %s", left)
		}
	})
}

// TestReplicas: a node that knows two servers joins through one, which is then killed. The
// node sends heartbeats to the other one, drains through it with an open connection, and
// leaves.
func TestReplicas(t *testing.T) {
	one := harness.Start(t, harness.Postgres, "--mesh-heartbeat", "1s")
	two := one.Replica(t)
	kubectl(t, one, "create", "namespace", "shop")
	alpha := join(t, one, "shop", "alpha", "--server", two.Config().Host, "--listen", "127.0.0.1:0", "--forward", echo(t), "--drain-timeout", "60s")
	one.Kill()
	for range 3 {
		last := two.Query("SELECT last_seen::text FROM mesh_nodes")[0]
		harness.Until(t, "the next heartbeat", func() error {
			if two.Query("SELECT last_seen::text FROM mesh_nodes")[0] == last {
				return errors.New("it has not come")
			}
			return nil
		})
	}
	if said := alpha.said(); !strings.Contains(said, "next="+two.Config().Host) {
		t.Errorf("the agent said:\n%s", said)
	}
	conn, err := net.Dial("tcp", field(t, two, "alpha", ".spec.address"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := talk(conn); err != nil {
		t.Fatal(err)
	}
	kubectl(t, two, "delete", "meshnode", "alpha", "--wait=false")
	awaitPhase(t, two, "alpha", "Draining")
	if err := errors.Join(talk(conn), conn.Close()); err != nil {
		t.Errorf("the connection of a draining node: %v", err)
	}
	alpha.ends(0)
	if events := kubectl(t, two, "get", "events"); !strings.Contains(events, "drained: the node said that it had finished") {
		t.Errorf("events:\n%s", events)
	}
	if left := kubectl(t, two, "get", "meshnodes", "-o", "name"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// TestEndpoints: which client may reach which endpoint.
func TestEndpoints(t *testing.T) {
	each(t, func(t *testing.T, s *harness.Server) {
		h := s.HTTP()
		secret := (rand.Text() + rand.Text())[:43]
		made := h.Do(t, harness.Request{Method: "POST", Path: "/exeunt/mesh/tokens", Body: `{"project":"shop","ttlSeconds":600}`})
		token := strings.Trim(made.Field("text"), `"`)
		stored := strings.Join(s.Query("SELECT hash FROM bootstrap_tokens"), " ")
		_, word, _ := strings.Cut(strings.TrimPrefix(token, "exb_"), "_")
		if len(stored) != 64 || strings.Contains(stored, word) || word == "" {
			t.Errorf("token %s is stored as %s", token, stored)
		}
		if list := string(h.Get(t, "/exeunt/mesh/tokens").Body); strings.Contains(list, word) || !strings.Contains(list, `"state":"issued"`) {
			t.Errorf("a token is shown again: %s", list)
		}
		body := fmt.Sprintf(`{"token":%q,"nonce":%q,"secret":%q,"name":"alpha"}`, token, rand.Text(), secret)
		enrolled := h.Do(t, harness.Request{Method: "POST", Path: "/exeunt/mesh/node/enrol", Body: body, Anonymous: true})
		if enrolled.Code != 200 {
			t.Fatalf("enrol: %d %s", enrolled.Code, enrolled.Body)
		}
		node := "exn_" + strings.Trim(enrolled.Field("uid"), `"`) + "_" + secret
		for _, c := range []struct {
			who, token, method, path, body string
			want                           int
		}{
			{"a node", node, "POST", "/exeunt/mesh/node/heartbeat", "", 200},
			{"a node", node, "GET", "/exeunt/mesh/node/peers", "", 200},
			{"a node", node, "GET", "/exeunt/mesh/tokens", "", 401},
			{"a node", node, "POST", "/exeunt/mesh/tokens", `{"project":"shop","ttlSeconds":600}`, 401},
			{"a node", node, "GET", "/apis/mesh.exeunt.dev/v1alpha1/meshnodes", "", 401},
			{"a node", node, "GET", "/api/v1/secrets", "", 401},
			{"a node", node, "GET", "/exeunt/gc", "", 401},
			{"a node", node, "GET", "/exeunt/mesh/node/../../gc", "", 401},
			{"a token", token, "POST", "/exeunt/mesh/node/heartbeat", "", 401},
			{"no credential", "", "POST", "/exeunt/mesh/node/heartbeat", "", 401},
			{"no credential", "", "GET", "/exeunt/mesh/node/peers", "", 401},
			{"no credential", "", "POST", "/exeunt/mesh/node/leave", "", 401},
			{"no credential", "", "POST", "/exeunt/mesh/node/drained", "", 401},
			{"no credential", "", "GET", "/exeunt/mesh/tokens", "", 401},
			{"no credential", "", "POST", "/exeunt/mesh/node/enrol", "{}", 400},
			{"no credential", "", "POST", "/exeunt/mesh/node/enrol", strings.Repeat("x", 1<<20), 400},
			{"no credential", "", "POST", "/exeunt/mesh/node/enrol", `{"name":"` + strings.Repeat("x", 1<<20) + `"}`, 413},
		} {
			a := h.Do(t, harness.Request{Method: c.method, Path: c.path, Body: c.body, Token: c.token, Anonymous: true})
			if a.Code != c.want || a.Field("kind") != `"Status"` && c.want != 200 {
				t.Errorf("%s, %s %s: %d %s; want %d", c.who, c.method, c.path, a.Code, a.Body, c.want)
			}
		}
		// An administrator may change metadata, and none of the fields that the mesh owns.
		kubectl(t, s, "label", "meshnode", "alpha", "zone=a")
		for _, patch := range []string{`{"spec":{"address":"203.0.113.1:1"}}`, `{"status":{"phase":"Left"}}`} {
			r := s.Kubectl(t, "-n", "shop", "patch", "meshnode", "alpha", "--type=merge", "-p", patch)
			if r.Code == 0 || !strings.Contains(r.Stderr, "is the mesh's to write") {
				t.Errorf("patch %s: %s%s", patch, r.Stdout, r.Stderr)
			}
		}
		s.Alive()
	})
}
