// Package attack_test attacks the real server over loopback, as a single client with or
// without valid credentials can: watches that the client never reads, bodies that never
// end, documents that grow when the server reads them.
//
// Every attack has the same frame. startTarget starts a server. probe sends harmless
// requests every 100 ms until the attack is over: /readyz, an object and a list of tags.
// Each must answer within tolerable, and /readyz promptly. awaitMemory waits until the
// process has released the memory that the attack used.
//
// The attacks are small enough for every run of the tests. Each reproduces a defect that
// made the server silent for more than a minute.
package attack_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/test/harness"
)

const (
	// tolerable is how long a probe may wait for its answer while an attack
	// runs. The server answers in milliseconds; the bound leaves room for busy
	// test machines and is far below what the defects cost.
	tolerable  = 5 * time.Second
	probeEvery = 100 * time.Millisecond
	// promptly is how soon /readyz answers throughout an attack, on a machine with a
	// processor for the server: see starved.
	promptly = time.Second
	// memorySlack is the memory that a process may keep after an attack, in addition to
	// 1.2 times what it had before: stacks, pools, caches of what the attack read.
	memorySlack = 48 << 20
)

const configMaps = "/api/v1/namespaces/default/configmaps"

func TestMain(m *testing.M) {
	harness.GOGC = "" // memory is what most attacks are about
	os.Exit(m.Run())
}

// target is a server under attack.
type target struct {
	*harness.Server
	http *harness.HTTP
	tls  *tls.Config // has the administrator's client certificate
	host string      // of the API, HOST:PORT
	tags string      // URL of the tags that the probes read; empty if there is none
}

// startTarget starts a server that has what the probes ask for: an object and a repository
// with a tag.
func startTarget(t *testing.T, engine string, flags ...string) *target {
	t.Helper()
	a := newTarget(t, harness.Start(t, engine, flags...))
	a.create(t, configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"probe"}}`)
	a.push(t)
	a.tags = "http://" + a.Registry() + "/v2/default/probe/tags/list"
	return a
}

func newTarget(t *testing.T, s *harness.Server) *target {
	t.Helper()
	config := s.Config()
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &target{Server: s, http: s.HTTP(), tls: settings, host: strings.TrimPrefix(config.Host, "https://")}
}

// create posts one object; it must be created.
func (a *target) create(t testing.TB, path, body string) {
	t.Helper()
	if answer := a.http.Do(t, harness.Request{Method: "POST", Path: path, Body: body}); answer.Code != http.StatusCreated {
		t.Fatalf("POST %s: %d %.300s", path, answer.Code, answer.Body)
	}
}

// push puts an empty index with a tag into the registry.
func (a *target) push(t testing.TB) {
	t.Helper()
	const index = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`
	request, err := http.NewRequest("PUT", "http://"+a.Registry()+"/v2/default/probe/manifests/v1", strings.NewReader(index))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/vnd.oci.image.index.v1+json")
	answer, err := a.RegistryHTTP().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusCreated {
		t.Fatalf("push: %s %s", answer.Status, body)
	}
}

// dial opens a TLS connection to the API whose receive buffer is as small as
// the kernel allows, so that an answer stalls early when the client does not
// read it. protocol is "http/1.1" or "h2". The connection ends with the test.
func (a *target) dial(t testing.TB, protocol string) *tls.Conn {
	t.Helper()
	return a.dialTo(t, a.host, protocol)
}

// dialTo is like dial, to another address of the server.
func (a *target) dialTo(t testing.TB, address, protocol string) *tls.Conn {
	t.Helper()
	settings := a.tls.Clone()
	settings.NextProtos = []string{protocol}
	if settings.ServerName == "" {
		settings.ServerName, _, _ = net.SplitHostPort(a.host)
	}
	conn := tls.Client(a.dialPlain(t, address), settings)
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		t.Fatalf("TLS handshake: %v", err)
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != protocol {
		t.Fatalf("the server speaks %q, want %q", got, protocol)
	}
	return conn
}

// dialPlain is like dial, without TLS, to any address of the server.
func (a *target) dialPlain(t testing.TB, address string) net.Conn {
	t.Helper()
	dialer := net.Dialer{Timeout: harness.Patience, Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1)
		})
		return errors.Join(err, failed)
	}}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// send writes raw bytes of a request.
func send(t testing.TB, conn net.Conn, text string) {
	t.Helper()
	if err := conn.SetWriteDeadline(time.Now().Add(harness.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatalf("send %.60q: %v", text, err)
	}
}

// awaitClose returns nil when the server has closed the connection. It reads and drops
// what the server sent before. If the connection is still open after the limit, it returns
// an error.
func awaitClose(conn net.Conn, limit time.Duration) error {
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the connection is open after %v; %d bytes were read", limit, n)
	}
	return nil
}

// probes records what harmless clients see during an attack.
type probes struct {
	t    *testing.T
	stop context.CancelFunc
	done sync.WaitGroup

	target *target
	beside chan struct{} // one element for each probe of askBeside
	began  time.Time
	waited time.Duration // target.waited when the probes began
	cpu    processors    // when the probes began

	mu    sync.Mutex
	ready []answered               // answers of /readyz; guarded by mu
	worst map[string]time.Duration // guarded by mu
	count int                      // guarded by mu
	wrong []string                 // guarded by mu
}

// answered is how long an answer took, and how many threads of server and test waited for a processor meanwhile, on average.
type answered struct {
	took    time.Duration
	waiting float64
}

// probe asks the server until end is called.
func (a *target) probe(t *testing.T) *probes {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &probes{t: t, stop: stop, target: a, beside: make(chan struct{}, tolerable/probeEvery), began: time.Now(), waited: a.waited(t), cpu: readProcessors(t), worst: map[string]time.Duration{}}
	client, err := rest.HTTPClientFor(a.Config())
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{
		"readyz": "https://" + a.host + "/readyz",
		"get":    "https://" + a.host + configMaps + "/probe",
	}
	clients := map[string]*http.Client{"readyz": client, "get": client}
	if a.tags != "" {
		paths["tags"], clients["tags"] = a.tags, a.RegistryHTTP()
	}
	for name, url := range paths {
		p.done.Go(func() {
			// The attack may end before the first answer: that answer counts too.
			for {
				if name == "readyz" {
					p.askBeside(clients[name], name, url)
				} else {
					p.ask(clients[name], name, url)
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(probeEvery):
				}
			}
		})
	}
	t.Cleanup(func() {
		stop()
		p.done.Wait()
		client.CloseIdleConnections()
	})
	return p
}

// askBeside sends one probe and does not wait for its answer: each probe of a silent
// server counts, not only the first. It sends none if all probes of the last 5 seconds
// are unanswered.
func (p *probes) askBeside(client *http.Client, name, url string) {
	select {
	case p.beside <- struct{}{}:
		p.done.Go(func() {
			p.ask(client, name, url)
			<-p.beside
		})
	default:
	}
}

// ask sends one probe. Its timeout is much longer than tolerable, so that the log shows
// how long the server was silent.
func (p *probes) ask(client *http.Client, name, url string) {
	limited, cancel := context.WithTimeout(context.Background(), 4*tolerable)
	defer cancel()
	start, waited := time.Now(), p.target.waited(p.t)
	code, err := fetch(limited, client, url)
	took := time.Since(start)
	waiting := float64(p.target.waited(p.t)-waited) / float64(took)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	p.worst[name] = max(p.worst[name], took)
	if name == "readyz" {
		p.ready = append(p.ready, answered{took, waiting})
	}
	if err != nil || code != http.StatusOK {
		p.wrong = append(p.wrong, fmt.Sprintf("%s: code %d, error %v after %v", name, code, err, took.Round(time.Millisecond)))
	}
}

func fetch(ctx context.Context, client *http.Client, url string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// end stops the probes and waits for the answers that are still open. Every probe must be
// answered with 200 within tolerable.
func (p *probes) end() {
	p.t.Helper()
	p.stop()
	p.done.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.t.Logf("%d probes; slowest answers: %v", p.count, p.worst)
	if p.count == 0 {
		p.t.Error("no probe was answered during the attack")
	}
	starved := p.starved()
	p.wantPrompt(starved)
	for i, wrong := range p.wrong {
		if i == 10 {
			p.t.Errorf("and %d more", len(p.wrong)-i)
			break
		}
		p.t.Error(wrong)
	}
	for name, worst := range p.worst {
		if limit := time.Duration(starved * float64(tolerable)); worst > limit {
			p.t.Errorf("%s was answered after %v, want %v at most", name, worst, limit)
		}
	}
}

// starved returns by which factor answers may be late because others have the
// processors. Other programs: how many threads of server and test waited for one, on
// average, at least 1. A server that waits for a lock, a connection or a client has no
// such threads. Other virtual machines: what they took of the time in which this one
// had work.
func (p *probes) starved() float64 {
	p.t.Helper()
	waiting := max(1, float64(p.target.waited(p.t)-p.waited)/float64(time.Since(p.began)))
	now := readProcessors(p.t)
	stolen, busy := now.stolen-p.cpu.stolen, now.busy-p.cpu.busy
	return waiting * float64(stolen+busy+1) / float64(busy+1)
}

// processors is what the kernel counts for all processors, in ticks.
type processors struct{ busy, stolen int64 }

func readProcessors(t testing.TB) (p processors) {
	t.Helper()
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	// "cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …"
	fields := strings.Fields(string(bytes.SplitN(data, []byte("\n"), 2)[0]))
	for i, ticks := range fields {
		n, err := strconv.ParseInt(ticks, 10, 64)
		switch {
		case i == 0 || i == 4 || i == 5 || i > 8:
		case err != nil:
			t.Fatal(err)
		case i == 8:
			p.stolen = n
		default:
			p.busy += n
		}
	}
	return p
}

// wantPrompt: the server answered nineteen of twenty probes of /readyz promptly, by what
// others left of the processors during the attack or, where that is less, during the probe. It
// requires mu.
func (p *probes) wantPrompt(starved float64) {
	p.t.Helper()
	var late []answered
	for _, a := range p.ready {
		if a.took > time.Duration(max(starved, a.waiting)*float64(promptly)) {
			late = append(late, a)
		}
	}
	p.t.Logf("/readyz: %d of %d took longer than %v, times the threads that waited", len(late), len(p.ready), promptly)
	if len(late) > max(1, len(p.ready)/20) {
		p.t.Errorf("%d of %d probes of /readyz took longer than %v, times the threads that waited, %.1f or more: %v", len(late), len(p.ready), promptly, starved, late)
	}
}

// waited returns how long the threads of the server and of the test have waited for a
// processor, together.
func (a *target) waited(t testing.TB) (sum time.Duration) {
	t.Helper()
	server, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", a.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	own, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Concat(server, own) {
		data, _ := os.ReadFile(path) // the thread may have ended
		// "RAN WAITED SLICES", in nanoseconds
		if fields := strings.Fields(string(data)); len(fields) == 3 {
			ns, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(ns)
		}
	}
	return sum
}

// memory is the resident memory of the server's process, in bytes.
func (a *target) memory(t testing.TB) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		fields := strings.Fields(string(line))
		if len(fields) == 3 && fields[0] == "VmRSS:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("the process has no VmRSS")
	return 0
}

// awaitMemory waits until the server has released the memory that the attack used. Its
// requests make the Go runtime collect garbage.
func (a *target) awaitMemory(t testing.TB, before int64) {
	t.Helper()
	peak := a.memory(t)
	limit := before + before/5 + memorySlack
	harness.Within(t, 2*time.Minute, "memory given back", func() error {
		a.http.Get(t, "/metrics")
		now := a.memory(t)
		if now > limit {
			return fmt.Errorf("%d MiB resident, %d before the attack, want %d at most", now>>20, before>>20, limit>>20)
		}
		t.Logf("resident: %d MiB before, %d at the end of the attack, %d afterwards", before>>20, peak>>20, now>>20)
		return nil
	})
}
