package api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/exeunt/exeunt/api/bodycost"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

func TestReadBody(t *testing.T) {
	for _, size := range []int{1, firstRead - 1, firstRead, firstRead + 1, 100_000, bodycost.MaxBody - 1, bodycost.MaxBody} {
		for _, length := range []int64{int64(size), -1} {
			sent := bytes.Repeat([]byte("x"), size)
			req := httptest.NewRequest("POST", "/", iotest.HalfReader(bytes.NewReader(sent)))
			req.ContentLength = length
			var memory atomic.Int64
			got, held, err := readBody(req, &memory)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d bytes of length %d: %d came, %v", size, length, len(got), err)
			}
			if held != memory.Load() || held < int64(size) || held > 2*int64(size)+firstRead {
				t.Errorf("%d bytes: %d held, %d counted", size, held, memory.Load())
			}
		}
	}
}

func TestReadBodyRefuses(t *testing.T) {
	large := strings.NewReader(strings.Repeat("x", bodycost.MaxBody+1))
	for name, c := range map[string]struct {
		body     io.Reader
		inMemory int64
		code     string
	}{
		"too large":       {large, 0, "limit is 3145728"},
		"no memory left":  {strings.NewReader("x"), maxBodies, "please try again"},
		"it breaks off":   {io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF)), 0, "ended before it was complete"},
		"it is too slow":  {io.MultiReader(strings.NewReader("x"), iotest.ErrReader(fmt.Errorf("read: %w", os.ErrDeadlineExceeded))), 0, "did not arrive in time"},
		"memory runs out": {strings.NewReader(strings.Repeat("x", 1<<20)), maxBodies - 100_000, "please try again"},
	} {
		var memory atomic.Int64
		memory.Store(c.inMemory)
		req := httptest.NewRequest("POST", "/", c.body)
		req.ContentLength = -1
		_, held, err := readBody(req, &memory)
		if err == nil || !strings.Contains(err.Error(), c.code) {
			t.Errorf("%s: %v", name, err)
		}
		if memory.Load() != c.inMemory+held {
			t.Errorf("%s: %d held, %d counted", name, held, memory.Load()-c.inMemory)
		}
	}
}

// TestUnreadBodies: a client whose body does not arrive whole learns why.
func TestUnreadBodies(t *testing.T) {
	w := newWorld(t, store.Options{})
	for want, err := range map[int]error{http.StatusBadRequest: io.ErrUnexpectedEOF, http.StatusRequestTimeout: fmt.Errorf("read: %w", os.ErrDeadlineExceeded)} {
		for _, method := range []string{"POST", "DELETE"} {
			req := known(httptest.NewRequest(method, configMaps, io.MultiReader(strings.NewReader("{"), iotest.ErrReader(err))))
			req.Header.Set("Content-Type", "application/json")
			req.ContentLength = -1
			if r := w.answer(req); r.code != want {
				t.Errorf("%s, %v: %d %s", method, err, r.code, r.body)
			}
		}
	}
}

// TestBodiesAreGivenBack: after every request, whatever its result, the memory of its body
// is no longer counted.
func TestBodiesAreGivenBack(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	w.want(http.StatusConflict, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	w.want(http.StatusBadRequest, "POST", configMaps, `{"metadata":`)
	w.want(http.StatusBadRequest, "POST", configMaps, strings.Repeat("[", 9000))
	w.want(http.StatusRequestEntityTooLarge, "POST", configMaps, strings.Repeat("[", bodycost.MaxBody+1))
	w.want(http.StatusOK, "DELETE", configMaps+"/a", `{"kind":"DeleteOptions","apiVersion":"v1"}`)
	if n := w.api.bodies.Load(); n != 0 {
		t.Errorf("%d bytes are counted still", n)
	}
}

// TestBodyIsReadBeforeItsPlace: clients that send slowly do not count as in flight.
func TestBodyIsReadBeforeItsPlace(t *testing.T) {
	w := newWorld(t, store.Options{})
	slow, end := io.Pipe()
	done := make(chan reply)
	go func() {
		req := known(httptest.NewRequest("POST", configMaps, slow))
		req.Header.Set("Content-Type", "application/json")
		req.ContentLength = -1
		done <- w.answer(req)
	}()
	if _, err := io.WriteString(end, `{"metadata":`); err != nil { // returns when it is read
		t.Fatal(err)
	}
	if n := w.api.inFlight.Serving(); n != 0 {
		t.Errorf("%d places are taken", n)
	}
	if _, err := io.WriteString(end, `{"name":"slow"}}`); err != nil {
		t.Fatal(err)
	}
	_ = end.Close()
	if r := <-done; r.code != http.StatusCreated {
		t.Errorf("answered %d %s", r.code, r.body)
	}
}

// TestFullServerReadsNoBody: a server that serves as many requests as it can refuses
// the next one before it reads the body.
func TestFullServerReadsNoBody(t *testing.T) {
	w := newWorld(t, store.Options{})
	for !w.api.inFlight.Full() {
		r, _ := w.api.inFlight.Begin(nil, httptest.NewRequest("GET", "/", nil))
		defer r.End()
	}
	body := &unread{}
	req := known(httptest.NewRequest("POST", configMaps, body))
	req.Header.Set("Content-Type", "application/json")
	req.ContentLength = 10
	if r := w.answer(req); r.code != http.StatusTooManyRequests || body.reads > 0 {
		t.Errorf("answered %d after %d reads of the body; want 429 and no read", r.code, body.reads)
	}
}

// unread counts the reads of a body.
type unread struct{ reads int }

func (u *unread) Read([]byte) (int, error) {
	u.reads++
	return 0, io.EOF
}

// TestPatchWork: an expensive patch is refused. The same patch on a smaller object, and a
// long patch of cheap operations, are applied.
func TestPatchWork(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"small"},"data":{"k":"v"}}`)
	w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"large"},"data":{"k":"`+strings.Repeat("x", 200_000)+`"}}`)
	const jsonPatch, merge, strategic = "Content-Type: application/json-patch+json", "Content-Type: application/merge-patch+json", "Content-Type: application/strategic-merge-patch+json"
	repeat := func(operation string) string {
		return "[" + strings.Repeat(operation+",", 9999) + `{"op":"add","path":"/data/a","value":"c"}]`
	}
	adds, tests := repeat(`{"op":"add","path":"/data/a","value":"b"}`), repeat(`{"op":"test","path":"/kind","value":"ConfigMap"}`)
	for _, name := range []string{"small", "large"} {
		if r := w.want(http.StatusOK, "PATCH", configMaps+"/"+name, adds, jsonPatch); r.get("data.a") != "c" {
			t.Errorf("%s was patched: %s", name, r.body)
		}
	}
	w.want(http.StatusOK, "PATCH", configMaps+"/small", tests, jsonPatch)
	w.want(http.StatusRequestEntityTooLarge, "PATCH", configMaps+"/large", tests, jsonPatch)

	wide := `{"data":{"k":` + strings.Repeat(`{"a":`, 200) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("}", 200) + `}}`
	w.want(http.StatusRequestEntityTooLarge, "PATCH", configMaps+"/small", wide, merge)
	w.want(http.StatusOK, "PATCH", configMaps+"/large", `{"data":{"a":"b"}}`, merge)

	owners := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"%d"}`, i)
		}
		return `{"metadata":{"ownerReferences":[` + strings.Join(list, ",") + `]}}`
	}
	w.want(http.StatusOK, "PATCH", configMaps+"/small", owners(1000), strategic)
	w.want(http.StatusOK, "PATCH", configMaps+"/small", owners(2), strategic)
	w.want(http.StatusRequestEntityTooLarge, "PATCH", configMaps+"/small", owners(40_000), strategic)
}

const (
	sacks          = "/apis/test.dev/v1/namespaces/shop/sacks"
	sackDefinition = `{"metadata":{"name":"sacks.test.dev"},"spec":{"group":"test.dev","scope":"Namespaced","names":{"plural":"sacks","kind":"Sack"},
	"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
)

// TestStoredDepth: the depth limit applies to the result of a request, not only to its body.
func TestStoredDepth(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.want(http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", sackDefinition)
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	sack := func(n int) string {
		return `{"apiVersion":"test.dev/v1","kind":"Sack","metadata":{"name":"a"},"spec":` + deep(n) + `}`
	}
	dbtest.Until(w.t, "sacks are served", func() error {
		if r := w.send("POST", sacks, sack(150)); r.code != http.StatusCreated {
			return fmt.Errorf("%d %s", r.code, r.body)
		}
		return nil
	})
	const jsonPatch = "Content-Type: application/json-patch+json"
	add := func(n int) string {
		return `[{"op":"add","path":"/spec` + strings.Repeat("/a", 149) + `","value":` + deep(n) + `}]`
	}
	w.want(http.StatusOK, "PATCH", sacks+"/a", add(50), jsonPatch)
	if r := w.want(http.StatusBadRequest, "PATCH", sacks+"/a", add(150), jsonPatch); !strings.Contains(r.get("message"), "nested too deeply") {
		t.Errorf("refused with %s", r.body)
	}
	w.want(http.StatusBadRequest, "PUT", sacks+"/a", sack(object.MaxDepth))
	// managedFields nest as deep as the fields, and deeper: a stored object can still be
	// read and sent back.
	for n := 240; n < object.MaxDepth; n++ {
		body := strings.Replace(sack(n), `"a"`, fmt.Sprintf(`"n%d"`, n), 1)
		if r := w.send("POST", sacks, body); r.code == http.StatusCreated {
			w.want(http.StatusOK, "PUT", fmt.Sprintf("%s/n%d", sacks, n), r.body)
		} else if r.code != http.StatusBadRequest {
			t.Errorf("%d levels: answered %d %.200s", n, r.code, r.body)
		}
	}
}

// TestCopyLimit: a JSON patch whose copies double a value 13 times is refused, even
// if it removes the value at the end.
func TestCopyLimit(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	patch := func(copies int) string {
		return `[{"op":"add","path":"/z","value":["` + strings.Repeat("x", 1000) + `"]}` +
			strings.Repeat(`,{"op":"copy","from":"/z","path":"/z/-"}`, copies) + `,{"op":"remove","path":"/z"}]`
	}
	const jsonPatch = "Content-Type: application/json-patch+json"
	w.want(http.StatusOK, "PATCH", configMaps+"/a", patch(3), jsonPatch)
	w.want(http.StatusUnprocessableEntity, "PATCH", configMaps+"/a", patch(13), jsonPatch)
}
