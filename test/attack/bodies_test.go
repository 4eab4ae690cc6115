package attack_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/test/harness"
)

const (
	// refusedWithin limits how long the server takes to refuse a request because of its
	// headers, with room for a busy machine. The defect was no answer at all.
	refusedWithin = 15 * time.Second
	// bodyWithin limits how long the server waits for the rest of a body.
	bodyWithin = 60 * time.Second
)

// anonymous opens a TLS connection to the API without a client certificate.
func (a *target) anonymous(t testing.TB) net.Conn {
	t.Helper()
	settings := &tls.Config{RootCAs: a.tls.RootCAs, NextProtos: []string{"http/1.1"}}
	settings.ServerName, _, _ = net.SplitHostPort(a.host)
	conn := tls.Client(a.dialPlain(t, a.host), settings)
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		t.Fatalf("TLS handshake: %v", err)
	}
	return conn
}

// unfinished begins a request that declares a body of 100 bytes and sends one.
func unfinished(t testing.TB, conn net.Conn, method, path string, headers ...string) {
	t.Helper()
	send(t, conn, method+" "+path+" HTTP/1.1\r\nHost: "+conn.RemoteAddr().String()+"\r\nContent-Length: 100\r\n"+strings.Join(append(headers, ""), "\r\n")+"\r\n{")
}

// countAnswers reads the answers of all connections concurrently and waits until the
// server has closed them. It returns the number of answers by status code.
func countAnswers(t *testing.T, conns []net.Conn, limit time.Duration) map[int]int {
	t.Helper()
	start := time.Now()
	var mu sync.Mutex
	codes, open := map[int]int{}, 0
	var done sync.WaitGroup
	for _, conn := range conns {
		done.Go(func() {
			code, err := readAnswer(conn, start.Add(limit))
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
			if errors.Is(err, os.ErrDeadlineExceeded) {
				open++
			}
		})
	}
	done.Wait()
	t.Logf("%d requests with unfinished bodies: answers by code %v after %v", len(conns), codes, time.Since(start).Round(time.Millisecond))
	if open > 0 {
		t.Errorf("%d connections are open after %v", open, limit)
	}
	return codes
}

// readAnswer reads one answer, then until the end of the connection. It returns a nil
// error if the server closed the connection.
func readAnswer(conn net.Conn, deadline time.Time) (int, error) {
	if err := conn.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	if _, err = io.Copy(io.Discard, answer.Body); err == nil {
		_, err = io.Copy(io.Discard, conn)
	}
	return answer.StatusCode, err
}

// TestSlowBodiesWithoutCredentials: 300 requests without credentials whose bodies never
// end. The server refuses each at once and closes its connection.
func TestSlowBodiesWithoutCredentials(t *testing.T) {
	t.Parallel()
	a := startTarget(t, harness.SQLite)
	before := a.memory(t)
	p := a.probe(t)
	conns := make([]net.Conn, 300)
	for i := range conns {
		conns[i] = a.anonymous(t)
		unfinished(t, conns[i], "POST", configMaps, "Content-Type: application/json")
	}
	if codes := countAnswers(t, conns, refusedWithin); codes[http.StatusUnauthorized] != len(conns) {
		t.Errorf("want 401 for all requests")
	}
	p.end()
	a.awaitMemory(t, before)
}

// TestSlowBodiesOnOpenEndpoints: the same for endpoints that need no certificate
// (enrolment of nodes, the registry). There the server waits for the body, up to a limit.
func TestSlowBodiesOnOpenEndpoints(t *testing.T) {
	t.Parallel()
	a := startTarget(t, harness.SQLite)
	before := a.memory(t)
	p := a.probe(t)
	var enrols, manifests []net.Conn
	for range 10 { // more from one address are refused
		conn := a.anonymous(t)
		unfinished(t, conn, "POST", "/exeunt/mesh/node/enrol", "Content-Type: application/json")
		enrols = append(enrols, conn)
	}
	for range 100 {
		conn := a.dialPlain(t, a.Registry())
		unfinished(t, conn, "PUT", "/v2/default/probe/manifests/v2", "Content-Type: application/vnd.oci.image.index.v1+json", "Authorization: "+a.RegistryAuthorization())
		manifests = append(manifests, conn)
	}
	if codes := countAnswers(t, enrols, bodyWithin); codes[http.StatusOK] != 0 {
		t.Error("half a request is answered with 200")
	}
	if codes := countAnswers(t, manifests, 2*bodyWithin); codes[http.StatusCreated] != 0 {
		t.Error("half a manifest is stored")
	}
	p.end()
	a.awaitMemory(t, before)
}

// TestSlowBodiesOfClients: 700 requests with credentials whose bodies never end, more than
// the server serves at once. Other clients can read and write meanwhile.
func TestSlowBodiesOfClients(t *testing.T) {
	t.Parallel()
	a := startTarget(t, harness.SQLite)
	before := a.memory(t)
	conns := make([]net.Conn, 700)
	for i := range conns {
		conns[i] = a.dial(t, "http/1.1")
	}
	p := a.probe(t)
	for _, conn := range conns {
		unfinished(t, conn, "POST", configMaps, "Content-Type: application/json")
	}
	for i := range 20 {
		a.create(t, configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"meanwhile-%d"}}`, i))
	}
	if codes := countAnswers(t, conns, bodyWithin); codes[http.StatusRequestTimeout] != len(conns) {
		t.Error("want 408 for all requests")
	}
	p.end()
	a.awaitMemory(t, before)
}

// TestSlowBodiesOverHTTP2: 700 such requests on three connections.
func TestSlowBodiesOverHTTP2(t *testing.T) {
	t.Parallel()
	a := startTarget(t, harness.SQLite)
	before := a.memory(t)
	p := a.probe(t)
	var clients []*http.Client
	for range 3 {
		client, err := rest.HTTPClientFor(separate(a.Config()))
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseIdleConnections()
		clients = append(clients, client)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bodyWithin)
	defer cancel()
	codes := make(chan int)
	const streams = 700
	for i := range streams {
		body, end := io.Pipe()
		defer end.Close()
		request, err := http.NewRequestWithContext(ctx, "POST", "https://"+a.host+configMaps, io.MultiReader(strings.NewReader("{"), body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		go func() {
			answer, err := clients[i%len(clients)].Do(request)
			if err != nil {
				codes <- 0
				return
			}
			answer.Body.Close()
			codes <- answer.StatusCode
		}()
	}
	for i := range 20 {
		a.create(t, configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"meanwhile-%d"}}`, i))
	}
	count := map[int]int{}
	for range streams {
		count[<-codes]++
	}
	t.Logf("answers by code: %v", count)
	if count[http.StatusRequestTimeout] != streams {
		t.Error("want 408 for all requests")
	}
	p.end()
	a.awaitMemory(t, before)
}

// TestRefusedUnread: the server refuses a request because of its headers, before it reads
// the body.
func TestRefusedUnread(t *testing.T) {
	a := startTarget(t, harness.SQLite)
	for _, c := range []struct {
		name, method, path, contentType, length string
		code                                    int
	}{
		{"an unknown kind", "POST", "/api/v1/namespaces/default/unicorns", "application/json", "100", 404},
		{"a verb that is not for it", "PUT", configMaps, "application/json", "100", 405},
		{"an unknown media type", "POST", configMaps, "text/plain", "100", 415},
		{"an unknown patch", "PATCH", configMaps + "/probe", "application/json", "100", 415},
		{"more than a body may have", "POST", configMaps, "application/json", "9223372036854775807", 413},
		{"more than can be said", "POST", configMaps, "application/json", "9223372036854775808", 400},
		{"less than nothing", "POST", configMaps, "application/json", "-1", 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := a.dial(t, "http/1.1")
			send(t, conn, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %s\r\n\r\n{", c.method, c.path, a.host, c.contentType, c.length))
			code, err := readAnswer(conn, time.Now().Add(refusedWithin))
			if code != c.code || err != nil {
				t.Errorf("answered %d, then %v; want %d and a closed connection", code, err, c.code)
			}
		})
	}
	conn := a.dialPlain(t, a.Registry())
	send(t, conn, "PUT /v2/default/probe/manifests/v2 HTTP/1.1\r\nHost: "+a.Registry()+"\r\nAuthorization: "+a.RegistryAuthorization()+"\r\nContent-Type: application/vnd.oci.image.index.v1+json\r\nContent-Length: 9223372036854775807\r\n\r\n{")
	if code, err := readAnswer(conn, time.Now().Add(refusedWithin)); code != 413 || err != nil {
		t.Errorf("a huge manifest: answered %d, then %v; want 413 and a closed connection", code, err)
	}
}
