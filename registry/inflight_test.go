package registry_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestTooManyRequests: above the limit of requests served at once clients get 429 with
// Retry-After.
func TestTooManyRequests(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	declare := func(context.Context, registry.Client, string) error {
		started <- struct{}{}
		<-finish
		return &registry.Error{Code: registry.Denied, Message: "not here"}
	}
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), registry.Config{MaxRequests: 1, Declare: declare})
	pushed := make(chan answer, 1)
	go func() { pushed <- w.send("POST", "/v2/a/b/blobs/uploads/", nil, nil) }()
	select {
	case <-started:
	case <-time.After(patience):
		t.Fatal("the push did not begin")
	}
	a := w.refuses(http.StatusTooManyRequests, registry.TooManyRequests, "GET", "/v2/", nil, nil)
	if a.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %v", a.header)
	}
	close(finish)
	w.receive(pushed)
	w.want(http.StatusOK, "GET", "/v2/", nil, nil)
}

// TestSlowClientsTakeNoSlot: uploads and downloads that wait for their clients do not
// count as served.
func TestSlowClientsTakeNoSlot(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), registry.Config{MaxRequests: 1})
	content := strings.Repeat("blob", 4<<20)
	blob := "/v2/a/b/blobs/" + digest.FromString(content).String()
	w.want(http.StatusCreated, "POST", "/v2/a/b/blobs/uploads/?digest="+digest.FromString(content).String(), nil, content)
	address := strings.TrimPrefix(w.url, "http://")
	for _, text := range []string{
		"GET " + blob + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"PUT /v2/a/b/manifests/v1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/vnd.oci.image.index.v1+json\r\nContent-Length: 100\r\n\r\n{",
		"POST /v2/a/b/blobs/uploads/?digest=" + digest.FromString("x").String() + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"POST /v2/a/b/blobs/uploads/?digest=" + digest.FromString("y").String() + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{",
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(text, "GET") { // its answer has begun, and is larger than the buffers between
			if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
				t.Fatalf("%q, %v", line, err)
			}
		}
		dbtest.Await(w, "a slot for others", func() bool { return w.send("GET", "/v2/", nil, nil).status == http.StatusOK })
	}
	for range 20 { // the last of them may have a slot for the moment in which its request arrives
		dbtest.Await(w, "a slot for others", func() bool { return w.send("GET", "/v2/a/b/tags/list", nil, nil).status == http.StatusOK })
	}
}
