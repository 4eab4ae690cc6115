package repository

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
)

// TestCacheLive: clients get a large blob while it is fetched, but for its last byte; one that does not read holds up neither the fetch nor
// another client. Where the bytes are others than were asked for, the answers break off and nothing is stored.
func TestCacheLive(t *testing.T) {
	const half = 3 << 20 // more than the window
	each(t, func(w *world) {
		up := newSource(w)
		w.cache("hub", up.URL, "")
		server := httptest.NewServer(w.registry)
		t.Cleanup(server.Close)
		honest := make([]byte, 2*half)
		for i := range honest {
			honest[i] = byte(i % 251)
		}
		layer := up.blob("web", honest)
		_, second := up.image("web", "v1", "small")
		w.want(200, "", "GET", "/v2/hub/web/blobs/"+second) // so that there is a repository
		get := func() io.ReadCloser {
			t.Helper()
			answer, err := http.Get(server.URL + "/v2/hub/web/blobs/" + layer.String())
			if err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != 200 || answer.ContentLength != 2*half || answer.Header.Get("Docker-Content-Digest") != layer.String() {
				t.Errorf("%s, %v", answer.Status, answer.Header)
			}
			return answer.Body
		}
		send := func(content []byte) (first, all func()) {
			begin, end := make(chan struct{}), make(chan struct{})
			up.on(func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Content-Length", strconv.Itoa(len(content)))
				<-begin
				_, _ = w.Write(content[:half])
				w.(http.Flusher).Flush()
				<-end
				_, _ = w.Write(content[half:])
				return true
			})
			return sync.OnceFunc(func() { close(begin) }), sync.OnceFunc(func() { close(end) })
		}

		lie := bytes.Clone(honest)
		lie[2*half-1]++
		first, all := send(lie)
		first()
		body := get()
		if got, err := io.ReadAll(io.LimitReader(body, half)); err != nil || !bytes.Equal(got, lie[:half]) {
			t.Errorf("%d bytes while it is fetched, %v", len(got), err)
		}
		all()
		if rest, err := io.ReadAll(body); err == nil || len(rest) >= half {
			t.Errorf("%d bytes more of a blob with another digest, %v", len(rest), err)
		}
		if n := w.Count(`SELECT count(*) FROM blobs WHERE digest = $1`, layer.String()) + w.Count(`SELECT count(*) FROM blob_uploads`); n != 0 {
			t.Errorf("%d rows of it", n)
		}

		first, all = send(honest)
		first()
		slow, fast := get(), get()
		if got, err := io.ReadAll(io.LimitReader(fast, half)); err != nil || !bytes.Equal(got, honest[:half]) {
			t.Errorf("%d bytes while it is fetched, %v", len(got), err)
		}
		all()
		for name, body := range map[string]io.Reader{"the fast client": io.MultiReader(bytes.NewReader(honest[:half]), fast), "the slow client": slow} {
			if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, honest) {
				t.Errorf("%s has %d bytes, %v", name, len(got), err)
			}
		}
		if n := up.count("GET /v2/web/blobs/" + layer.String()); n != 2 {
			t.Errorf("it was fetched %d times", n)
		}
		w.sound()
	})
}
