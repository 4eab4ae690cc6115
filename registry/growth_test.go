package registry_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// operation is a request whose cost must not depend on how much is stored. It is sent again and
// again, with other i.
type operation struct {
	name    string
	prepare func(w *filledWorld, i int) // pushes what run needs; may be nil
	run     func(w *filledWorld, i int)
}

// operations work on the larger repository: it grows with the registry.
var operations = []operation{
	{name: "head blob", run: func(w *filledWorld, i int) {
		w.send(200, "HEAD", w.Large(), "blobs/"+w.Layer(w.Image(i), 5), "")
	}},
	{name: "head shared blob", run: func(w *filledWorld, i int) { w.send(200, "HEAD", w.Large(), "blobs/"+w.Shared(), "") }},
	{name: "get blob", run: func(w *filledWorld, i int) {
		w.send(200, "GET", w.Large(), "blobs/"+w.Config(w.Image(i)), "")
	}},
	{name: "head by tag", run: func(w *filledWorld, i int) {
		w.send(200, "HEAD", w.Large(), "manifests/"+w.Tag(w.Image(i)), "")
	}},
	{name: "get by tag", run: func(w *filledWorld, i int) {
		w.send(200, "GET", w.Large(), "manifests/"+w.Tag(w.Image(i)), "")
	}},
	{name: "get by digest", run: func(w *filledWorld, i int) {
		w.send(200, "GET", w.Large(), "manifests/"+w.Manifest(w.Image(i)), "")
	}},
	{name: "list tags", run: func(w *filledWorld, i int) {
		// After these tags come ten more, however few there are.
		w.send(200, "GET", w.Large(), "tags/list?n=10&last="+w.Tag(w.Image(i%5)), "")
	}},
	{name: "referrers", run: func(w *filledWorld, i int) {
		w.send(200, "GET", w.Large(), "referrers/"+w.Manifest(w.Image(4*(i+1))), "")
	}},
	{name: "page of referrers", run: func(w *filledWorld, i int) {
		w.send(200, "GET", w.Large(), "referrers/"+w.Manifest(w.Subject())+"?n=2", "")
	}},
	{name: "upload small", run: func(w *filledWorld, i int) {
		content := fmt.Sprint("small ", i)
		w.send(201, "POST", w.Large(), "blobs/uploads/?digest="+sha256(content), content)
	}},
	{name: "upload chunks", run: func(w *filledWorld, i int) {
		content := fmt.Sprint("chunks ", i)
		at := w.send(202, "POST", w.Large(), "blobs/uploads/", "").Get("Location")
		w.sendTo(202, "PATCH", at, content)
		w.sendTo(201, "PUT", at+"?digest="+sha256(content), "")
	}},
	{name: "mount", run: func(w *filledWorld, i int) {
		w.send(201, "POST", w.Small(), "blobs/uploads/?from="+w.Large()+"&mount="+w.Layer(w.Image(i), 1+i%9), "")
	}},
	{name: "mount shared", run: func(w *filledWorld, i int) {
		w.send(201, "POST", w.Small(), "blobs/uploads/?from="+w.Large()+"&mount="+w.Shared(), "")
	}},
	{name: "put manifest", run: func(w *filledWorld, i int) { w.put("put", "put", i) }},
	{
		name:    "move tag",
		prepare: func(w *filledWorld, i int) { w.put("moved", "moved from", i) },
		run:     func(w *filledWorld, i int) { w.put("moved", "moved to", i) },
	},
	{
		name:    "delete tag",
		prepare: func(w *filledWorld, i int) { w.put("deleted", "deleted tag", i) },
		run: func(w *filledWorld, i int) {
			w.send(202, "DELETE", w.Large(), fmt.Sprint("manifests/deleted-", i), "")
		},
	},
	{
		name:    "delete manifest",
		prepare: func(w *filledWorld, i int) { w.put("with", "deleted", i) },
		run: func(w *filledWorld, i int) {
			w.send(202, "DELETE", w.Large(), "manifests/"+sha256(w.manifest("deleted", i)), "")
		},
	},
}

// filledWorld is a registry that is full, without a listener.
type filledWorld struct {
	testing.TB
	registrytest.Filled
	registry *registry.Registry
}

func newFilledWorld(t testing.TB, db *sqldb.DB, store blobstore.Store, filled registrytest.Filled) *filledWorld {
	return &filledWorld{t, filled, registry.New(registry.Config{DB: db, Blobs: store, Logger: slog.New(slog.DiscardHandler)})}
}

func openDir(t testing.TB) blobstore.Store {
	t.Helper()
	store, err := blobstore.OpenDir(registrytest.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// send sends a request about a repository.
func (w *filledWorld) send(status int, method, repo, path, body string) http.Header {
	w.Helper()
	return w.sendTo(status, method, "/v2/"+repo+"/"+path, body)
}

func (w *filledWorld) sendTo(status int, method, path, body string) http.Header {
	w.Helper()
	req := httptest.NewRequestWithContext(w.Context(), method, path, strings.NewReader(body))
	if strings.Contains(path, "/manifests/") {
		req.Header.Set("Content-Type", ociManifest)
	}
	answer := httptest.NewRecorder()
	w.registry.ServeHTTP(answer, req)
	if answer.Code != status {
		text, _ := io.ReadAll(answer.Result().Body)
		w.Fatalf("%s %s: status %d, not %d: %s", method, path, answer.Code, status, text)
	}
	return answer.Header()
}

// manifest returns a new manifest of stored blobs.
func (w *filledWorld) manifest(name string, i int) string {
	image := w.Image(i)
	var layers []string
	for _, d := range []string{w.Layer(image, 1), w.Layer(image, 2), w.Shared()} {
		layers = append(layers, descriptor(ociLayer, d, 2))
	}
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s],"annotations":{"name":"%s %d"}}`,
		ociManifest, descriptor(ociConfig, w.Config(image), 2), strings.Join(layers, ","), name, i)
}

// put pushes a new manifest with a tag.
func (w *filledWorld) put(tag, name string, i int) {
	w.Helper()
	w.send(201, "PUT", w.Large(), fmt.Sprintf("manifests/%s-%d", tag, i), w.manifest(name, i))
}

// TestLookUps: an operation needs as many look-ups with few blobs as with six times more.
func TestLookUps(t *testing.T) {
	const each = 40
	store := openDir(t)
	var filled registrytest.Filled
	byName := map[string]operation{"": {}}
	var names []string
	for _, op := range operations {
		byName[op.name], names = op, append(names, op.name)
	}
	repeat := func(db *sqldb.DB, fn func(w *filledWorld, i int)) {
		w := newFilledWorld(t, db, store, filled)
		for i := range each {
			if fn != nil {
				fn(w, i)
			}
		}
	}
	dbtest.Growth{
		Few: 10_000, Many: 60_000, Each: each, Operations: names,
		Fill:    func(db *sqldb.DB, n int) { filled = registrytest.Fill(t, db, n, n/5) },
		Prepare: func(db *sqldb.DB, name string) { repeat(db, byName[name].prepare) },
		Run:     func(db *sqldb.DB, name string) { repeat(db, byName[name].run) },
	}.Check(t)
}

// BenchmarkGrowth measures the operations with a thousand and with a million blobs, in turns, so
// that what else the machine does slows down both. It runs on demand only: filling takes minutes.
//
//	script/postgres go test ./registry -run '^$' -bench Growth -benchtime 1000x
func BenchmarkGrowth(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			few, many := newBenchWorld(b, engine, 1_000), newBenchWorld(b, engine, 1_000_000)
			for _, op := range operations {
				for _, w := range []*benchWorld{few, many} {
					w.next = 0
					b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(op.name, " ", "-"), w.blobs), func(b *testing.B) { w.measure(b, op) })
				}
			}
		})
	}
}

type benchWorld struct {
	*filledWorld
	blobs int
	next  int // so that no request is repeated
}

func newBenchWorld(b *testing.B, engine sqldb.Engine, blobs int) *benchWorld {
	b.Helper()
	db := dbtest.OpenDB(b, engine)
	begin := time.Now()
	filled := registrytest.Fill(b, db, blobs, blobs/100)
	b.Logf("%d blobs were written in %v", blobs, time.Since(begin).Round(time.Millisecond))
	return &benchWorld{filledWorld: newFilledWorld(b, db, openDir(b), filled), blobs: blobs}
}

func (w *benchWorld) measure(b *testing.B, op operation) {
	w.TB = b
	first := w.next
	w.next += b.N
	if op.prepare != nil {
		for i := first; i < w.next; i++ {
			op.prepare(w.filledWorld, i)
		}
	}
	b.ResetTimer()
	for i := first; i < w.next; i++ {
		op.run(w.filledWorld, i)
	}
}
