package attack_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// What unread watches and lists return: 20 MB, far more than the sockets buffer.
const (
	largeObjects = 100
	largeSize    = 200_000
)

const (
	unreadList  = "/api/v1/configmaps?labelSelector=a!%3Dzz"
	unreadWatch = "/api/v1/configmaps?watch=true&timeoutSeconds=3600&labelSelector=a!%3Dzz"
)

// fill stores the state, ten clients at a time.
func (a *target) fill(t testing.TB) {
	t.Helper()
	data := strings.Repeat("x", largeSize)
	var group sync.WaitGroup
	for client := range 10 {
		group.Go(func() {
			for i := client; i < largeObjects; i += 10 {
				a.create(t, configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large-%d"},"data":{"x":%q}}`, i, data))
			}
		})
	}
	group.Wait()
}

// get sends a GET over HTTP/1.1 on a connection that the client does not read.
func (a *target) get(t testing.TB, path, accept string) net.Conn {
	t.Helper()
	conn := a.dial(t, "http/1.1")
	send(t, conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: "+accept+"\r\n\r\n")
	return conn
}

// held counts the connections that the server's process still has open. In the kernel's
// table a connection that it closed has no owner, even while its data is unread.
func held(t testing.TB, conns []net.Conn) (n int) {
	t.Helper()
	attackers := map[string]bool{}
	for _, conn := range conns {
		server, client := conn.RemoteAddr().(*net.TCPAddr), conn.LocalAddr().(*net.TCPAddr)
		attackers[fmt.Sprintf("%04X %04X", server.Port, client.Port)] = true
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(table) {
		// "0: LOCAL:PORT REMOTE:PORT STATE … INODE …"
		fields := strings.Fields(string(line))
		if len(fields) < 10 || fields[9] == "0" {
			continue
		}
		_, local, _ := strings.Cut(fields[1], ":")
		_, remote, _ := strings.Cut(fields[2], ":")
		// The kernel may list a connection twice while others come and go.
		if pair := local + " " + remote; attackers[pair] {
			delete(attackers, pair)
			n++
		}
	}
	return n
}

// begun reports whether the server has begun to answer an attacker.
func begun(conns []net.Conn) bool {
	return slices.ContainsFunc(conns, func(conn net.Conn) bool {
		_ = conn.SetReadDeadline(time.Now().Add(time.Second)) // fails if the connection is closed, and so does the read
		n, _ := conn.Read(make([]byte, 12))
		return n > 0
	})
}

// awaitCutOff waits until the server has closed all connections of the attackers. They
// must be open when it is called, or, on a machine so slow that they were cut off before,
// must have received the beginning of an answer.
func awaitCutOff(t testing.TB, conns []net.Conn, limit time.Duration) {
	t.Helper()
	start := time.Now()
	if held(t, conns) == 0 && !begun(conns) {
		t.Errorf("the server has none of %d connections, and answered none", len(conns))
	}
	harness.Within(t, limit, "all unread answers cut off", func() error {
		if n := held(t, conns); n > 0 {
			return fmt.Errorf("the server has %d of %d connections", n, len(conns))
		}
		return nil
	})
	t.Logf("cut off after %v", time.Since(start).Round(100*time.Millisecond))
}

// TestUnreadAnswers opens watches and lists, eight of each kind, whose clients never read. The server serves all other clients meanwhile, and cuts off a client that
// has read nothing for the stall timeout.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	const stall = 8 * time.Second // a server that shares two processors with other tests may write late
	a := startTarget(t, harness.SQLite, "--stall-timeout", stall.String())
	a.fill(t)
	for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} { // fills the caches
		a.http.Do(t, harness.Request{Method: "GET", Path: unreadList, Accept: accept})
	}
	before := a.memory(t)
	attacks := []struct {
		name   string
		client func(t *testing.T) net.Conn
	}{
		{"JSON watch", func(t *testing.T) net.Conn { return a.get(t, unreadWatch, "application/json") }},
		{"JSON list", func(t *testing.T) net.Conn { return a.get(t, unreadList, "application/json") }},
		{"protobuf watch", func(t *testing.T) net.Conn {
			return a.get(t, unreadWatch, "application/vnd.kubernetes.protobuf;stream=watch")
		}},
		{"protobuf list", func(t *testing.T) net.Conn { return a.get(t, unreadList, "application/vnd.kubernetes.protobuf") }},
		{"JSON watch by HTTP/2", func(t *testing.T) net.Conn { return a.stream(t, unreadWatch, openWindow).conn }},
		{"JSON list by HTTP/2", func(t *testing.T) net.Conn { return a.stream(t, unreadList, openWindow).conn }},
	}
	// All at once: each waits for the same timeout.
	p := a.probe(t)
	all := make([][]net.Conn, len(attacks))
	for i, attack := range attacks {
		for range 8 {
			all[i] = append(all[i], attack.client(t))
		}
		a.create(t, configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"during-%d"}}`, i))
		if held(t, all[i]) == 0 && !begun(all[i]) {
			t.Errorf("%s: the server has none of the connections, and answered none", attack.name)
		}
	}
	for i, attack := range attacks {
		// The library's handlers decode and encode all 20 MB before they write.
		t.Run(attack.name, func(t *testing.T) { awaitCutOff(t, all[i], stall+4*harness.Patience) })
	}
	p.end()
	t.Run("HTTP/2 streams without a window", func(t *testing.T) {
		p := a.probe(t)
		var reset []<-chan error
		for range 8 {
			for _, path := range []string{unreadWatch, unreadList, configMaps + "/large-0", configMaps + "/probe"} {
				reset = append(reset, a.stream(t, path, 0).reset(t))
			}
		}
		deadline := time.After(stall + harness.Patience)
		for i := range reset {
			select {
			case err := <-reset[i]:
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
				}
			case <-deadline:
				t.Fatalf("stream %d is still open", i)
			}
		}
		p.end()
	})
	a.awaitMemory(t, before)
}

// TestUnreadWatchesEnd opens watches whose clients never read and that time out long
// before the stall timeout.
func TestUnreadWatchesEnd(t *testing.T) {
	t.Parallel()
	a := startTarget(t, harness.SQLite, "--stall-timeout", "1h")
	a.fill(t)
	p := a.probe(t)
	var conns []net.Conn
	for range 20 {
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf;stream=watch"} {
			conns = append(conns, a.get(t, strings.Replace(unreadWatch, "3600", "5", 1), accept))
		}
	}
	awaitCutOff(t, conns, harness.Patience)
	p.end()
}

// TestStopDuringUnreadAnswers stops a server while 500 unread watches and some unread
// lists and streams are open. It ends without an error, within its grace period of ten
// seconds.
func TestStopDuringUnreadAnswers(t *testing.T) {
	t.Parallel()
	const grace = 10 * time.Second
	a := startTarget(t, harness.SQLite, "--stall-timeout", "1h")
	a.fill(t)
	before := a.memory(t)
	p := a.probe(t)
	blob := a.pushBlob(t)
	var watches []net.Conn
	for i := range 500 {
		accept := "application/json"
		if i%5 == 0 {
			accept = "application/vnd.kubernetes.protobuf;stream=watch"
		}
		watches = append(watches, a.get(t, unreadWatch, accept))
	}
	for range 5 {
		a.get(t, unreadList, "application/json")
		a.stream(t, unreadWatch, openWindow)
		a.stream(t, unreadWatch, 0)
		a.getBlob(t, blob)
	}
	p.end()
	if n := held(t, watches); n != len(watches) {
		t.Errorf("the server has %d of %d watches", n, len(watches))
	}
	t.Logf("500 unread watches: %d MiB resident, %d before", a.memory(t)>>20, before>>20)
	start := time.Now()
	a.Stop()
	if took := time.Since(start); took > grace+tolerable {
		t.Errorf("the server ended %v after SIGTERM, want %v", took, grace)
	} else {
		t.Logf("the server ended %v after SIGTERM", took)
	}
}

// pushBlob pushes a blob of 16 MiB, which the registry stores in a file.
func (a *target) pushBlob(t testing.TB) (path string) {
	t.Helper()
	content := bytes.Repeat([]byte("blob"), 4<<20)
	url := fmt.Sprintf("http://%s/v2/default/probe/blobs/uploads/?digest=sha256:%x", a.Registry(), sha256.Sum256(content))
	answer, err := a.RegistryHTTP().Post(url, "application/octet-stream", bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusCreated {
		t.Fatalf("push a blob: %s %s", answer.Status, body)
	}
	return answer.Header.Get("Location")
}

func (a *target) getBlob(t testing.TB, path string) net.Conn {
	t.Helper()
	conn := a.dialPlain(t, a.Registry())
	send(t, conn, "GET "+path+" HTTP/1.1\r\nHost: "+a.Registry()+"\r\nAuthorization: "+a.RegistryAuthorization()+"\r\nConnection: close\r\n\r\n")
	return conn
}

// TestUnreadBlobs pulls blobs without reading them: the server cuts those clients off. A
// client that reads slowly, for several stall timeouts, receives the whole blob.
func TestUnreadBlobs(t *testing.T) {
	t.Parallel()
	const stall = 2 * time.Second
	a := startTarget(t, harness.SQLite, "--stall-timeout", stall.String())
	path := a.pushBlob(t)
	p := a.probe(t)
	var conns []net.Conn
	for range 50 {
		conns = append(conns, a.getBlob(t, path))
	}
	awaitCutOff(t, conns, stall+harness.Patience)

	slow := a.getBlob(t, path)
	start, read := time.Now(), 0
	for buffer := make([]byte, 1<<20); ; {
		if err := slow.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
			t.Fatal(err)
		}
		n, err := io.ReadFull(slow, buffer)
		read += n
		if err != nil {
			break
		}
		time.Sleep(4 * stall / 16) // the attack itself: four stall timeouts for the whole
	}
	if took := time.Since(start); read < 16<<20 || took < 2*stall {
		t.Errorf("the slow client received %d bytes in %v", read, took)
	}
	p.end()
}

// TestUnreadAnswersTakeNoSlots opens more unread answers than the server serves requests
// at once. It serves other clients meanwhile, and bounds the memory of those answers: it
// cuts off the ones that have waited longest.
func TestUnreadAnswersTakeNoSlots(t *testing.T) {
	t.Parallel()
	const unread, batch, memory = 700, 50, 600 << 20
	a := startTarget(t, harness.SQLite)
	a.fill(t)
	p := a.probe(t)
	var conns []net.Conn
	peak := int64(0)
	for len(conns) < unread {
		accept := "application/json"
		if len(conns)%100 == 0 {
			accept = "application/vnd.kubernetes.protobuf"
		}
		conns = append(conns, a.get(t, unreadList, accept))
		if len(conns)%batch == 0 { // limits how many the server encodes at the same time
			awaitBegin(t, conns[len(conns)-batch:])
			peak = max(peak, a.memory(t))
		}
	}
	a.create(t, configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"meanwhile"}}`)
	p.end()
	t.Logf("%d unread answers, of which the server has %d: %d MiB resident at most", unread, held(t, conns), peak>>20)
	if peak > memory {
		t.Errorf("%d MiB resident, want %d at most", peak>>20, memory>>20)
	}
}

// awaitBegin reads the beginning of each answer. It ignores answers that the server cut
// off before.
func awaitBegin(t testing.TB, conns []net.Conn) {
	t.Helper()
	for _, conn := range conns {
		if err := conn.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 12)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("an answer does not begin")
		}
	}
}
