package registry_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
)

// TestUploadOutlivesItsRepository: the repository is removed, with its row,
// while a blob is being sent to it. The push is refused with that reason, and
// nothing of it stays.
func TestUploadOutlivesItsRepository(t *testing.T) {
	const small = "small"
	large := strings.Repeat("content ", 100_000)
	post := func(content string) func(*world) (string, string, string) {
		return func(*world) (string, string, string) {
			return "POST", "/v2/a/blobs/uploads/?digest=" + sha256(content), content
		}
	}
	put := func(content string) func(*world) (string, string, string) {
		return func(w *world) (string, string, string) {
			return "PUT", w.begin("a") + "?digest=" + sha256(content), content
		}
	}
	for name, request := range map[string]func(*world) (method, path, content string){
		"POST": post(large), "small POST": post(small), "PUT": put(large), "small PUT": put(small),
		"PATCH": func(w *world) (string, string, string) { return "PATCH", w.begin("a"), large },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				method, path, content := request(w)
				status, body := w.sendAsItGoes(method, path, content)
				if status != 404 || !strings.Contains(body, string(registry.BlobUploadUnknown)) {
					w.Errorf("%d %s", status, body)
				}
				w.wantCounts("blobs 0, blob_uploads 0, manifests 0, tags 0")
			})
		})
	}
}

// TestSmallUploadOutlivesItsRepository: a small blob without an upload row
// creates the repository again, as any first push does.
func TestSmallUploadOutlivesItsRepository(t *testing.T) {
	eachSmall(t, func(w *world) {
		w.begin("a")
		status, body := w.sendAsItGoes("POST", "/v2/a/blobs/uploads/?digest="+sha256("small"), "small")
		if status != 201 {
			w.Errorf("%d %s", status, body)
		}
		w.wantCounts("blobs 1, blob_uploads 0, manifests 0, tags 0")
	})
}

// sendAsItGoes removes repository a before the first byte of a request's body is
// sent.
func (w *world) sendAsItGoes(method, path, content string) (status int, body string) {
	w.Helper()
	return w.sendAfter(method, path, content, func() { w.Exec(`DELETE FROM repositories WHERE path = 'a'`) })
}

// sendAfter calls a function when the request is admitted, before the first byte of its body is sent.
func (w *world) sendAfter(method, path, content string, first func()) (status int, body string) {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), method, w.url+path, &interrupted{Reader: strings.NewReader(content), first: first})
	if err != nil {
		w.Fatal(err)
	}
	req.ContentLength = int64(len(content))
	// The server asks for the body after the upload has begun.
	req.Header.Set("Expect", "100-continue")
	client := http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// interrupted calls a function before its first read.
type interrupted struct {
	io.Reader
	first func()
}

func (i *interrupted) Read(p []byte) (int, error) {
	if i.first != nil {
		i.first()
		i.first = nil
	}
	return i.Reader.Read(p)
}
