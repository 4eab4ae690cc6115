package attack_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"

	"github.com/exeunt/exeunt/test/harness"
)

// The attacks of this file need no credentials. While they run, the process has a limit on
// its memory, above which it would end.
const (
	// strangerMemory is the limit, in bytes, of the server's data segment. It has 200 MiB
	// without an attack.
	strangerMemory = 1 << 30
	// strangerTime is how long the server keeps a connection that shows no credentials and
	// is not served, with room for a busy machine.
	strangerTime = 75 * time.Second
)

// listener is one address of the server, and a path on it that needs no credentials and
// has a body.
type listener struct {
	name, address string
	tls           *tls.Config // without a client certificate; nil means plain HTTP
	path          string
	headers       []string // names and values, as the path wants them
	sibling       bool     // another one has the same address
}

// dial opens a connection without credentials; protocol is "http/1.1" or "h2", or empty
// for a connection without TLS.
func (l listener) dial(protocol string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", l.address)
	if err != nil {
		return nil, err
	}
	if l.tls != nil && protocol != "" {
		settings := l.tls.Clone()
		settings.NextProtos = []string{protocol}
		over := tls.Client(conn, settings)
		if err := over.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return over, nil
	}
	return conn, nil
}

// block encodes headers for HTTP/2, behind those of a POST to the listener's path.
func (l listener) block(add func(*hpack.Encoder)) []byte {
	var out bytes.Buffer
	e := hpack.NewEncoder(&out)
	fields := append([]string{":method", "POST", ":scheme", "https", ":authority", "localhost", ":path", l.path}, l.headers...)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // a buffer takes everything
	}
	add(e)
	return out.Bytes()
}

// large is one header of almost the size that the server accepts.
func large(e *hpack.Encoder) {
	_ = e.WriteField(hpack.HeaderField{Name: "x-large", Value: strings.Repeat("\xff", 1_000_000), Sensitive: true})
}

// dense is a number of small headers that take one byte each on the wire, and a hundred in memory.
func dense(n int) func(e *hpack.Encoder) {
	return func(e *hpack.Encoder) {
		for range n {
			_ = e.WriteField(hpack.HeaderField{Name: "a", Value: ""})
		}
	}
}

// distinct returns the lines of n different headers, the shortest that there are.
func distinct(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b strings.Builder
	for i := range n {
		for ; ; i = i/len(letters) - 1 {
			b.WriteByte(letters[i%len(letters)])
			if i < len(letters) {
				break
			}
		}
		b.WriteString(":\n")
	}
	return b.String()
}

// frames writes frames of HTTP/2, and the preface before the first.
func frames(conn net.Conn, write func(*http2.Framer) error) error {
	out := bytes.NewBufferString(http2.ClientPreface)
	f := http2.NewFramer(out, nil)
	f.AllowIllegalWrites = true
	if err := f.WriteSettings(); err != nil {
		return err
	}
	flush := func() error {
		_ = conn.SetWriteDeadline(time.Now().Add(harness.Patience)) // a closed connection fails the write
		_, err := conn.Write(out.Bytes())
		out.Reset()
		return err
	}
	if err := write(f); err != nil {
		return err
	}
	return flush()
}

// headers writes a block in as many frames as it needs. It leaves the block open unless
// end is true.
func headers(f *http2.Framer, stream uint32, block []byte, end bool) error {
	const most = 16 << 10
	first := block[:min(most, len(block))]
	rest := block[len(first):]
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndHeaders: end && len(rest) == 0})
	for err == nil && len(rest) > 0 {
		part := rest[:min(most, len(rest))]
		rest = rest[len(part):]
		err = f.WriteContinuation(stream, end && len(rest) == 0, part)
	}
	return err
}

// flood is an attack by strangers: connections of one protocol that each send the same.
type flood struct {
	name, protocol string
	connections    int
	// complete: a request of it reaches the handler of a path, so each path is attacked. The
	// others never leave the listener, whatever the path: one path of each listener is enough.
	complete bool
	send     func(l listener, conn net.Conn) error
}

var floods = []flood{
	{"large headers", "h2", 8, true, func(l listener, conn net.Conn) error {
		block := l.block(large)
		for i := range uint32(100) {
			err := frames1(conn, i == 0, func(f *http2.Framer) error {
				err := headers(f, 2*i+1, block, true)
				if err == nil {
					err = f.WriteData(2*i+1, false, []byte("{"))
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"open header blocks", "h2", 600, false, func(l listener, conn net.Conn) error {
		return frames(conn, func(f *http2.Framer) error { return headers(f, 1, l.block(dense(31_000)), false) })
	}},
	{"a slow request behind an open header block", "h2", 600, true, func(l listener, conn net.Conn) error {
		return frames(conn, func(f *http2.Framer) error {
			err := headers(f, 1, l.block(dense(0)), true)
			if err == nil {
				err = f.WriteData(1, false, []byte("{"))
			}
			if err == nil {
				err = headers(f, 3, l.block(dense(31_000)), false)
			}
			return err
		})
	}},
	{"endless header blocks", "h2", 20, false, func(l listener, conn net.Conn) error {
		part := l.block(dense(15_000))
		err := frames(conn, func(f *http2.Framer) error { return headers(f, 1, part, false) })
		for i := 0; err == nil && i < 2000; i++ {
			err = frames1(conn, false, func(f *http2.Framer) error { return f.WriteContinuation(1, false, part[len(part)-15_000:]) })
		}
		return err
	}},
	{"many streams", "h2", 300, true, func(l listener, conn net.Conn) error {
		return frames(conn, func(f *http2.Framer) error {
			block := l.block(dense(1))
			for i := range uint32(100) {
				if err := errors.Join(headers(f, 2*i+1, block, true), f.WriteData(2*i+1, false, []byte("{"))); err != nil {
					return err
				}
			}
			return nil
		})
	}},
	{"rapid reset", "h2", 20, true, func(l listener, conn net.Conn) error {
		block := l.block(dense(1))
		for i := range uint32(100) {
			err := frames1(conn, i == 0, func(f *http2.Framer) error {
				for j := range uint32(100) {
					id := 2*(100*i+j) + 1
					if err := errors.Join(headers(f, id, block, true), f.WriteRSTStream(id, http2.ErrCodeCancel)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"frames that are announced only", "h2", 1000, false, func(l listener, conn net.Conn) error {
		if err := frames(conn, func(*http2.Framer) error { return nil }); err != nil {
			return err
		}
		_, err := conn.Write([]byte{0x0f, 0xff, 0xff, byte(http2.FrameHeaders), 0, 0, 0, 0, 1}) // of 1 MiB
		return err
	}},
	{"no handshake", "", 3000, false, func(_ listener, conn net.Conn) error {
		_, err := conn.Write([]byte{0x16, 3, 1, 0x3f, 0xff}) // a TLS record of 16 KiB
		return err
	}},
	{"slow headers", "http/1.1", 100, false, func(l listener, conn net.Conn) error {
		_ = conn.SetWriteDeadline(time.Now().Add(harness.Patience))
		_, err := io.WriteString(conn, "POST "+l.path+" HTTP/1.1\r\nHost: localhost\r\n"+distinct(174_000))
		return err
	}},
	{"slow bodies", "http/1.1", 1500, true, func(l listener, conn net.Conn) error {
		text := "POST " + l.path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
		for i := 0; i < len(l.headers); i += 2 {
			text += l.headers[i] + ": " + l.headers[i+1] + "\r\n"
		}
		_ = conn.SetWriteDeadline(time.Now().Add(harness.Patience))
		_, err := io.WriteString(conn, text+"\r\n{")
		return err
	}},
}

// frames1 is frames for a connection that may have sent its preface.
func frames1(conn net.Conn, first bool, write func(*http2.Framer) error) error {
	if first {
		return frames(conn, write)
	}
	return frames(afterPreface{conn}, write)
}

// afterPreface drops the preface and the settings in front of a write.
type afterPreface struct{ net.Conn }

func (c afterPreface) Write(p []byte) (int, error) {
	return c.Conn.Write(p[len(http2.ClientPreface)+9:])
}

// run attacks with all connections, twenty at a time, and leaves them open until the server
// ends them. It may do so at any time. open counts those that it has not ended.
func (f flood) run(t *testing.T, l listener, open *atomic.Int64) {
	t.Helper()
	var group sync.WaitGroup
	var made, interrupted atomic.Int64
	turns := make(chan struct{}, 20)
	for range f.connections {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			conn, err := l.dial(f.protocol)
			if err != nil {
				return
			}
			made.Add(1)
			open.Add(1)
			go func() { // ends with the server, at the latest
				_, _ = io.Copy(io.Discard, conn)
				conn.Close()
				open.Add(-1)
			}()
			if f.send(l, conn) != nil {
				interrupted.Add(1)
			}
		})
	}
	group.Wait()
	t.Logf("%d connections, of %d; the server interrupted %d", made.Load(), f.connections, interrupted.Load())
}

// strangers is a server whose memory is limited, and its listeners.
type strangers struct {
	*target
	listeners []listener
	new       map[string]string // what a new client asks for: URLs, and its credentials
	open      atomic.Int64      // connections of attacks
}

// startStrangers starts a server with a registry that serves TLS, or plain HTTP.
func startStrangers(t *testing.T, plain bool) *strangers {
	t.Helper()
	secure := &tls.Config{ServerName: "localhost"}
	images := listener{"registry", "", secure, "/v2/token", []string{"content-type", "application/x-www-form-urlencoded"}, false}
	s, scheme := &strangers{}, "https://"
	if plain {
		s.target = startTarget(t, harness.SQLite)
		images.address, images.tls, scheme = s.Registry(), nil, "http://"
	} else {
		c := newConnections(t, harness.SQLite)
		c.create(t, configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"probe"}}`)
		s.target, images.address = c.target, c.images
	}
	secure.RootCAs = s.tls.RootCAs
	json := []string{"content-type", "application/json", "x-exeunt-console", "1"}
	s.listeners = []listener{
		{"sign-in", s.host, secure, "/console/session", json, true},
		{"enrolment", s.host, secure, "/exeunt/mesh/node/enrol", json, true},
		{"the API", s.host, secure, configMaps, json, false},
		images,
	}
	made := s.http.Do(t, harness.Request{Method: "POST", Path: "/api/v1/namespaces/default/serviceaccounts/default/token", Body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}`})
	token := strings.Trim(made.Field("status.token"), `"`)
	s.new = map[string]string{
		"https://" + s.host + configMaps:                             "Bearer " + token,
		scheme + images.address + "/v2/default/probe/manifests/none": "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+token)),
	}
	s.limitMemory(t, strangerMemory)
	return s
}

// limitMemory makes the kernel refuse memory to the server above a limit, which ends it.
func (a *target) limitMemory(t testing.TB, bytes uint64) {
	t.Helper()
	if err := unix.Prlimit(a.Pid(), unix.RLIMIT_DATA, &unix.Rlimit{Cur: bytes, Max: bytes}, nil); err != nil {
		t.Fatal(err)
	}
}

// newcomer connects as a client does that has a token and was never here before. Its
// rights are a role's matter.
func (s *strangers) newcomer(t *testing.T) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: s.listeners[0].tls.Clone(), ForceAttemptHTTP2: true}
	client := &http.Client{Transport: transport, Timeout: harness.Patience}
	defer client.CloseIdleConnections()
	for url, credential := range s.new {
		req, err := http.NewRequest("GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", credential)
		answer, err := client.Do(req)
		if err != nil {
			t.Errorf("a new client: %v", err)
			continue
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("a new client: %s", answer.Status)
		}
	}
}

// TestStrangers attacks each listener without credentials. The server stays within its
// memory, serves known clients and new ones, and ends all connections of the attacks.
func TestStrangers(t *testing.T) {
	for name, plain := range map[string]bool{"TLS": false, "plain HTTP": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startStrangers(t, plain)
			for i, f := range floods {
				attacked := slices.DeleteFunc(slices.Clone(s.listeners), func(l listener) bool {
					return plain && (l.tls != nil || f.protocol == "h2") || !f.complete && l.sibling
				})
				if testing.Short() && len(attacked) > 0 { // the listeners take turns
					attacked = attacked[i%len(attacked):][:1]
				}
				for _, l := range attacked {
					t.Run(f.name+" to "+l.name, func(t *testing.T) { s.attack(t, f, l) })
				}
			}
			harness.Within(t, strangerTime, "all connections ended", func() error {
				if n := s.open.Load(); n > 0 {
					return fmt.Errorf("%d connections are open", n)
				}
				return nil
			})
		})
	}
}

func (s *strangers) attack(t *testing.T, f flood, l listener) {
	t.Helper()
	before := s.memory(t)
	p := s.probe(t)
	f.run(t, l, &s.open)
	for range 5 {
		s.newcomer(t)
	}
	t.Logf("%d MiB resident, %d before; %d connections are open", s.memory(t)>>20, before>>20, s.open.Load())
	p.end()
	s.Alive()
}
