package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestLife: an agent joins, stops, comes back without a token, drains on request and leaves.
func TestLife(t *testing.T) {
	w := newWorld(t)
	c, other := w.config("alpha"), w.config("beta")
	c.Stay = true
	nodes := make(chan Node, 2)
	c.Joined = func(n Node) { nodes <- n }
	w.joined(other)
	p := w.joined(c)
	for _, name := range []string{stateFile, peersFile} {
		if info, err := os.Stat(filepath.Join(c.State, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	data, err := os.ReadFile(filepath.Join(c.State, peersFile))
	if err != nil || !strings.Contains(string(data), `"name": "beta"`) || strings.Contains(string(data), `"name": "alpha"`) {
		t.Errorf("peers: %s, %v", data, err)
	}
	uid := w.node("alpha").UID
	if n := <-nodes; n.Name != "alpha" || n.UID != string(uid) || n.Project == "" {
		t.Errorf("Joined got %+v; want node alpha with uid %s", n, uid)
	}
	p.stop()
	if err := p.wait(); err != nil {
		t.Errorf("stop and stay: %v", err)
	}
	// The state directory has the flags of the first start.
	c.Token, c.CAHash, c.Servers = "", "", nil
	if err := os.Remove(filepath.Join(c.State, peersFile)); err != nil {
		t.Fatal(err)
	}
	p = w.joined(c)
	if got := w.node("alpha").UID; got != uid {
		t.Errorf("it came back as another: %s, not %s", got, uid)
	}
	if n := <-nodes; n.UID != string(uid) {
		t.Errorf("after the restart Joined got %+v; want uid %s", n, uid)
	}
	w.delete("alpha")
	if err := p.wait(); err != nil {
		t.Errorf("drain: %v", err)
	}
	if w.node("alpha") != nil {
		t.Error("the node is still there")
	}
	if _, err := os.Stat(filepath.Join(c.State, stateFile)); err == nil {
		t.Error("the credential of a node that left is kept")
	}
}

func TestLeave(t *testing.T) {
	w := newWorld(t)
	c := w.config("alpha")
	p := w.joined(c)
	p.stop()
	if err := p.wait(); err != nil || w.node("alpha") != nil {
		t.Errorf("leave: %v", err)
	}
	if how := w.leftHow(c.Token); !strings.HasPrefix(how, "drained") {
		t.Errorf("it left: %s", how)
	}
}

// TestDrainWaitsForConnections: a draining node accepts no new connections, and leaves
// only after the last old one has ended.
func TestDrainWaitsForConnections(t *testing.T) {
	w := newWorld(t)
	c := w.config("alpha")
	c.Listen, c.Forward = "127.0.0.1:0", w.echo()
	p := w.joined(c)
	address := w.node("alpha").Spec.Address
	conn := w.dial(address)
	w.delete("alpha")
	dbtest.Await(w, "no more connections", func() bool {
		other, err := net.Dial("tcp", address)
		if err != nil {
			return true
		}
		_ = other.Close()
		return false
	})
	if err := talk(conn); err != nil {
		t.Errorf("the connection that was open: %v", err)
	}
	dbtest.Await(w, "Draining", func() bool { return w.node("alpha").Status.Phase == v1alpha1.PhaseDraining })
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.wait(); err != nil || w.node("alpha") != nil {
		t.Errorf("drain: %v", err)
	}
	if how := w.leftHow(c.Token); !strings.HasPrefix(how, "drained") {
		t.Errorf("it left: %s", how)
	}
}

// TestDrainTimeout: at the deadline the agent closes its connections, and the server
// records that the node did not acknowledge its drain.
func TestDrainTimeout(t *testing.T) {
	w := newWorld(t)
	c := w.config("alpha")
	c.Listen, c.Forward, c.DrainTimeout = "127.0.0.1:0", w.echo(), time.Second
	p := w.joined(c)
	conn := w.dial(w.node("alpha").Spec.Address)
	w.delete("alpha")
	if err := p.wait(); err != nil || w.node("alpha") != nil {
		t.Errorf("drain: %v", err)
	}
	if err := talk(conn); err == nil {
		t.Error("the connection goes on")
	}
	if how := w.leftHow(c.Token); !strings.Contains(how, "it sends heartbeats, but did not finish in time") {
		t.Errorf("it left: %s", how)
	}
}

// TestOnDrain: the agent runs the command until it succeeds, and stays in the mesh
// until then.
func TestOnDrain(t *testing.T) {
	w := newWorld(t)
	c := w.config("alpha")
	c.OnDrain = `echo "$EXEUNT_PROJECT/$EXEUNT_NODE" >> "$RUNS"; test $(wc -l < "$RUNS") -ge 2`
	runs := filepath.Join(t.TempDir(), "runs")
	c.OnDrain = strings.ReplaceAll(c.OnDrain, "$RUNS", runs)
	p := w.joined(c)
	w.delete("alpha")
	if err := p.wait(); err != nil || w.node("alpha") != nil {
		t.Errorf("drain: %v", err)
	}
	if data, err := os.ReadFile(runs); err != nil || string(data) != "shop/alpha\nshop/alpha\n" {
		t.Errorf("runs: %q, %v", data, err)
	}
}

// TestLostAnswers: for every request of an agent, the server executes it and the
// answer is lost.
func TestLostAnswers(t *testing.T) {
	w := newWorld(t)
	lost := map[string]int{}
	w.intercepted(func(next http.Handler, rw http.ResponseWriter, req *http.Request) {
		w.mu.Lock()
		first := lost[req.URL.Path] == 0
		lost[req.URL.Path]++
		w.mu.Unlock()
		if first {
			next.ServeHTTP(httptest.NewRecorder(), req)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(rw, req)
	})
	c := w.config("alpha")
	p := w.joined(c)
	p.stop()
	if err := p.wait(); err != nil {
		t.Errorf("leave: %v", err)
	}
	if how := w.leftHow(c.Token); !strings.HasPrefix(how, "drained") {
		t.Errorf("it left: %s", how)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, path := range []string{v1alpha1.EnrolPath, v1alpha1.LeavePath, v1alpha1.DrainedPath} {
		if lost[path] < 2 {
			t.Errorf("%s was called %d times", path, lost[path])
		}
	}
}

// TestKilledBeforeTheAnswer: after a kill between request and answer, the next agent
// gets the node of the first, although the token is consumed.
func TestKilledBeforeTheAnswer(t *testing.T) {
	w := newWorld(t)
	c := w.config("alpha")
	granted := make(chan struct{})
	w.intercepted(func(next http.Handler, _ http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(httptest.NewRecorder(), req)
		close(granted)
		<-req.Context().Done()
	})
	p := w.start(c)
	<-granted
	w.intercepted(nil)
	p.stop()
	if err := p.wait(); err == nil {
		t.Error("an agent that was stopped while it enrolled has nothing to say")
	}
	uid := w.node("alpha").UID
	w.joined(c)
	if got := w.node("alpha").UID; got != uid {
		t.Errorf("the second enrolment made another node: %s, not %s", got, uid)
	}
}

// TestKilledWhileLeaving: after a kill the next start continues to leave.
func TestKilledWhileLeaving(t *testing.T) {
	w := newWorld(t)
	c := w.config("alpha")
	c.Stay = true
	p := w.joined(c)
	p.stop()
	if err := p.wait(); err != nil {
		t.Fatal(err)
	}
	leave := func() {
		path := filepath.Join(c.State, stateFile)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var s state
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		s.Leaving = true
		if err := writeFile(path, s); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	kept, err := os.ReadFile(filepath.Join(c.State, stateFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.start(c).wait(); err != nil || w.node("alpha") != nil {
		t.Errorf("leave: %v", err)
	}
	// And killed after the server was told: there is nothing left to do.
	if err := os.WriteFile(filepath.Join(c.State, stateFile), kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.start(c).wait(); err != nil {
		t.Errorf("leave again: %v", err)
	}
}

// TestRemoved: the agent of a node that the server has removed ends with an error
// that says so, and keeps its state file for the operator.
func TestRemoved(t *testing.T) {
	w := newWorld(t)
	c := w.config("alpha")
	c.Stay = true
	p := w.joined(c)
	p.stop()
	if err := p.wait(); err != nil {
		t.Fatal(err)
	}
	n := w.node("alpha")
	if err := w.mesh.Leave(t.Context(), meshNode(n)); err != nil {
		t.Fatal(err)
	}
	if err := w.mesh.Drained(t.Context(), meshNode(n)); err != nil {
		t.Fatal(err)
	}
	if err := w.start(c).wait(); !errors.Is(err, ErrRemoved) {
		t.Errorf("ended with %v", err)
	}
	if _, err := os.Stat(filepath.Join(c.State, stateFile)); err != nil {
		t.Error(err)
	}
}

func TestNameTaken(t *testing.T) {
	w := newWorld(t)
	w.joined(w.config(machineName()))
	c := w.config(machineName())
	if err := w.start(c).wait(); err == nil || !strings.Contains(err.Error(), "has a node "+machineName()+" already") {
		t.Errorf("a name that was asked for: %v", err)
	}
	c = w.config("")
	w.joined(c)
	var s state
	data, err := os.ReadFile(filepath.Join(c.State, stateFile))
	if err != nil || json.Unmarshal(data, &s) != nil || !strings.HasPrefix(s.Name, machineName()+"-") || w.node(s.Name) == nil {
		t.Errorf("the machine's name: %s, %v", data, err)
	}
}

// TestUnreachableServer: an agent that cannot reach the server while it leaves ends
// with an error, and keeps its state for the next start.
func TestUnreachableServer(t *testing.T) {
	w := newWorld(t)
	c := w.config("alpha")
	c.DrainTimeout = time.Second
	p := w.joined(c)
	w.intercepted(func(_ http.Handler, rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) })
	p.stop()
	if err := p.wait(); err == nil || !strings.Contains(err.Error(), "the server did not get") {
		t.Errorf("leave without a server: %v", err)
	}
	w.intercepted(nil)
	if err := w.start(c).wait(); err != nil || w.node("alpha") != nil {
		t.Errorf("leave later: %v", err)
	}
}

// TestOtherServers: an agent tries its servers in turn, skips those that are down,
// fail or are not trusted, keeps the one that answers, and stores all of them.
func TestOtherServers(t *testing.T) {
	w := newWorld(t)
	broken := 0
	failing := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		broken++
		rw.WriteHeader(http.StatusServiceUnavailable)
	}))
	failing.TLS = &tls.Config{Certificates: w.server.TLS.Certificates}
	failing.StartTLS()
	defer failing.Close()
	stranger := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a server that is not trusted was sent a request")
	}))
	stranger.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}
	stranger.StartTLS()
	defer stranger.Close()
	down := httptest.NewTLSServer(nil)
	down.Close()
	c := w.config("alpha")
	c.Servers = []string{down.URL, stranger.URL, failing.URL, w.server.URL}
	p := w.joined(c)
	w.delete("alpha")
	if err := p.wait(); err != nil {
		t.Errorf("drained by the one that answers: %v", err)
	}
	w.mu.Lock()
	if broken != 1 {
		t.Errorf("a server that fails was asked %d times, although another answers", broken)
	}
	w.mu.Unlock()

	c = w.config("beta")
	c.Servers, c.Stay = []string{down.URL, w.server.URL}, true
	p = w.joined(c)
	p.stop()
	if err := p.wait(); err != nil {
		t.Fatal(err)
	}
	c.Servers, c.Token, c.CAHash, c.Stay = nil, "", "", false
	p = w.joined(c)
	p.stop()
	if err := p.wait(); err != nil {
		t.Errorf("left by a server that it remembered: %v", err)
	}

	c = w.config("gamma")
	c.Servers = []string{stranger.URL, stranger.URL}
	if err := w.start(c).wait(); err == nil || !strings.Contains(err.Error(), "has the fingerprint") {
		t.Errorf("of servers that are all strangers: %v", err)
	}
}

// selfSigned returns a certificate of a CA that no agent trusts.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestRefusals: a configuration that cannot work is refused at once, with its cause.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	busy := w.config("busy")
	w.joined(busy)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.Servers = nil }, "--server: say where"},
		{func(c *Config) { c.Servers = []string{w.server.URL, "http://127.0.0.1:1"} }, "want https://"},
		{func(c *Config) { c.Servers = []string{"https://x/path"} }, "want https://"},
		{func(c *Config) { c.Token = "" }, "--token: this node has not enrolled"},
		{func(c *Config) { c.Token = "secret" }, "not a bootstrap token"},
		{func(c *Config) { c.Token = "a_b_c" }, "enrol: the bootstrap token is not valid"},
		{func(c *Config) { c.Token = busy.Token }, "enrol: node busy has enrolled by the token"},
		{func(c *Config) { c.Project = "bank" }, "enrol: the token is not for project bank"},
		{func(c *Config) { c.Name = "No Name" }, "enrol: name:"},
		{func(c *Config) { c.CAFile = "x" }, "one of the two"},
		{func(c *Config) { c.CAHash = "md5:x" }, "want sha256:"},
		{func(c *Config) { c.CAHash, c.CAFile = "", file }, "no PEM certificate"},
		{func(c *Config) { c.Listen = "127.0.0.1:0" }, "belong together"},
		{func(c *Config) { c.Advertise = "x:1" }, "without --listen"},
		{func(c *Config) { c.Listen, c.Forward = "nowhere", "x:1" }, "want HOST:PORT"},
		{func(c *Config) { c.DrainTimeout = 2 * time.Hour }, "at most an hour"},
		{func(c *Config) { c.State = busy.State }, "another agent uses"},
	} {
		config := w.config("new")
		c.change(&config)
		if err := w.start(config).wait(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v; want %q", err, c.want)
		}
	}
	if w.node("new") != nil {
		t.Error("a refusal made a node")
	}
}

// TestTrust: an agent sends nothing to a server whose certificate it does not trust.
func TestTrust(t *testing.T) {
	w := newWorld(t)
	called := false
	w.intercepted(func(http.Handler, http.ResponseWriter, *http.Request) { called = true })
	right := w.config("a").CAHash
	for name, c := range map[string]struct {
		hash, server, want string
	}{
		"another authority":     {"sha256:" + strings.Repeat("0", 64), w.server.URL, "has the fingerprint"},
		"the system's":          {"", w.server.URL, "unknown authority"},
		"a name it has not got": {right, strings.Replace(w.server.URL, "127.0.0.1", "localhost", 1), "certificate is valid for"},
	} {
		config := w.config("a")
		config.CAHash, config.Servers = c.hash, []string{c.server}
		if err := w.start(config).wait(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if called {
		t.Error("a server that is not trusted was sent a request")
	}
}
