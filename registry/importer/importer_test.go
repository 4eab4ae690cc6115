package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is a tree and a registry to import it to.
type world struct {
	*testing.T
	files    files
	url      string
	requests func(http.Handler) http.Handler // middleware in front of the registry
	problems []string
}

func each(t *testing.T, test func(w *world)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		dir, err := blobstore.OpenDir(filepath.Join(t.TempDir(), "blobs"))
		if err != nil {
			t.Fatal(err)
		}
		target := registry.New(registry.Config{DB: db, Blobs: dir, Logger: slog.New(slog.DiscardHandler)})
		w := &world{T: t, files: files{fstest.MapFS{}}, requests: func(h http.Handler) http.Handler { return h }}
		server := httptest.NewServer(http.HandlerFunc(func(a http.ResponseWriter, req *http.Request) { w.requests(target).ServeHTTP(a, req) }))
		t.Cleanup(server.Close)
		w.url = server.URL
		test(w)
	})
}

// prepare makes an import of the tree, and keeps its problems.
func (w *world) prepare(moveTags bool) *Import {
	w.Helper()
	w.problems = nil
	i := New(Config{
		Tree: w.files.tree(w.T), URL: w.url, Client: &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}},
		MoveTags: moveTags, Failed: func(p Problem) { w.problems = append(w.problems, p.String()) },
	})
	i.client.pause = time.Millisecond
	return i
}

// run imports the tree, and returns the import with its counts.
func (w *world) run(moveTags bool) (*Import, error) {
	w.Helper()
	i := w.prepare(moveTags)
	err := i.Run(w.Context())
	slices.Sort(w.problems)
	return i, err
}

// imports runs an import that must succeed, with these counts.
func (w *world) imports(want string) {
	w.Helper()
	i, err := w.run(false)
	if err != nil {
		w.Fatal(err)
	}
	got := fmt.Sprintf("manifests %d/%d, sent %d, tags %d, blobs %d, mounted %d, unused %d, failed %d", i.Manifests.Load(), i.AllManifests.Load(),
		i.ManifestsSent.Load(), i.TagsSet.Load(), i.BlobsSent.Load(), i.BlobsMounted.Load(), i.BlobsUnused.Load(), i.Failed.Load())
	if got != want {
		w.Errorf("imported: %s; want %s\n%s", got, want, strings.Join(w.problems, "\n"))
	}
}

// get expects content at a path of the registry.
func (w *world) get(path, want string) {
	w.Helper()
	answer, err := http.Get(w.url + "/v2/" + path)
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || string(got) != want {
		w.Errorf("GET %s: %s, %d bytes, not the %d of the tree: %v", path, answer.Status, len(got), len(want), err)
	}
}

// TestImport: everything is imported, once; a second run sends nothing.
func TestImport(t *testing.T) {
	each(t, func(w *world) {
		f, big := w.files, strings.Repeat("big", 100_000)
		web := imageOf(f.layer("shop/web", "config"), f.layer("shop/web", big), f.layer("shop/web", ""))
		a := f.manifest("shop/web", web)
		list := listOf(a)
		f.tag("shop/web", "v1", f.manifest("shop/web", list))
		f.tag("shop/web", "image", a)
		signature := strings.TrimSuffix(imageOf(f.layer("shop/web", "config")), "}") + `,"subject":` + descriptor(a) + `}`
		f.manifest("shop/web", signature)
		missing := strings.TrimSuffix(imageOf(f.layer("shop/web", "config")), "}") + `,"subject":` + descriptor(digest.FromString("nowhere")) + `}`
		f.manifest("shop/web", missing)
		f.layer("shop/web", "garbage")
		w.imports("manifests 4/4, sent 4, tags 2, blobs 3, mounted 0, unused 1, failed 0")
		w.get("shop/web/manifests/v1", list)
		w.get("shop/web/manifests/image", web)
		w.get("shop/web/manifests/"+digest.FromString(signature).String(), signature)
		w.get("shop/web/blobs/"+digest.FromString(big).String(), big)
		w.get("shop/web/blobs/"+digest.FromString("").String(), "")
		w.imports("manifests 4/4, sent 0, tags 0, blobs 0, mounted 0, unused 1, failed 0")

		// Large blobs that another repository has are not sent.
		f.tag("copy", "v1", f.manifest("copy", imageOf(f.layer("copy", "config"), f.layer("copy", big), f.layer("copy", ""))))
		w.imports("manifests 5/5, sent 1, tags 1, blobs 2, mounted 1, unused 1, failed 0")
		w.get("copy/blobs/"+digest.FromString(big).String(), big)
	})
}

// TestImportManyTags: more tags than one request accepts.
func TestImportManyTags(t *testing.T) {
	each(t, func(w *world) {
		d := w.files.manifest("r", listOf())
		for n := range 2*maxTags + 1 {
			w.files.tag("r", fmt.Sprint("t", n), d)
		}
		w.imports("manifests 1/1, sent 1, tags 201, blobs 0, mounted 0, unused 0, failed 0")
		w.get("r/manifests/t200", listOf())
	})
}

// TestImportProblems: each problem is named, and the rest is imported.
func TestImportProblems(t *testing.T) {
	each(t, func(w *world) {
		f := w.files
		good := imageOf(f.layer("r", "config"))
		f.tag("r", "good", f.manifest("r", good))

		lost := f.layer("r", "lost")
		delete(f.MapFS, dataPath(lost))
		changed := f.layer("r", "changed")
		f.store("rotten", changed)
		unlinked := digest.FromString("unlinked")
		torn := f.layer("r", "torn")
		f.write("repositories/r/_layers/"+digestPath(torn)+"/link", "")
		want := []string{
			"r@" + lost.String() + ": its bytes are missing",
			"r@" + changed.String() + ": refused with 400: DIGEST_INVALID: the content has digest",
			"r@" + torn.String() + `: repositories/r/_layers/` + digestPath(torn) + `/link holds ""`,
		}
		for _, layer := range []digest.Digest{lost, changed, unlinked, torn} {
			m := f.manifest("r", imageOf(f.layer("r", "config"), layer))
			f.tag("r", "t-"+layer.Encoded()[:4], m)
			want = append(want, "r@"+m.String()+" (t-"+layer.Encoded()[:4]+"): refused with 404: MANIFEST_BLOB_UNKNOWN: the manifest refers to content that the repository does not have "+layer.String())
		}
		child := digest.FromString("child")
		list := f.manifest("r", listOf(child))
		want = append(want, "r@"+list.String()+": refused with 404: MANIFEST_BLOB_UNKNOWN: the manifest refers to content that the repository does not have "+child.String())
		old := f.manifest("r", `{"schemaVersion":1,"fsLayers":[]}`)
		want = append(want, "r@"+old.String()+": refused with 400: MANIFEST_INVALID: manifests of schema 1 are not supported")

		for range 2 { // a second run reports the same
			if _, err := w.run(false); err != nil {
				t.Fatal(err)
			}
			slices.Sort(want)
			if len(w.problems) != len(want) {
				t.Errorf("problems:\n%s", strings.Join(w.problems, "\n"))
			}
			for n := range min(len(want), len(w.problems)) {
				if !strings.HasPrefix(w.problems[n], want[n]) {
					t.Errorf("problem %q, want %q", w.problems[n], want[n])
				}
			}
		}
		w.get("r/manifests/good", good)
	})
}

// TestImportTagMoved: a client has pushed to the registry since.
func TestImportTagMoved(t *testing.T) {
	each(t, func(w *world) {
		old := w.files.manifest("r", listOf())
		w.files.tag("r", "latest", old)
		w.imports("manifests 1/1, sent 1, tags 1, blobs 0, mounted 0, unused 0, failed 0")
		w.files.tag("r", "latest", w.files.manifest("r", listOf(old)))
		w.imports("manifests 2/2, sent 1, tags 0, blobs 0, mounted 0, unused 0, failed 1")
		want := []string{"r:latest: the tree has it at " + digest.FromString(listOf(old)).String() + ", the server at " + old.String() + ": left as it is"}
		if diff := cmp.Diff(want, w.problems); diff != "" {
			t.Error(diff)
		}
		w.get("r/manifests/latest", listOf())
		if _, err := w.run(true); err != nil || len(w.problems) > 0 {
			t.Errorf("%v %v", err, w.problems)
		}
		w.get("r/manifests/latest", listOf(old))
	})
}

// TestImportInterrupted: the import retries while a registry restarts; if it
// does not answer for long, the import ends, and the next run continues.
func TestImportInterrupted(t *testing.T) {
	each(t, func(w *world) {
		for n := range 6 {
			config := w.files.layer("r", fmt.Sprint("config", n))
			w.files.tag("r", fmt.Sprint("v", n), w.files.manifest("r", imageOf(config)))
		}
		var pushed, away atomic.Int64
		w.requests = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(a http.ResponseWriter, req *http.Request) {
				if req.Method == http.MethodPut && pushed.Add(1) > 2 || away.Add(1)%3 == 0 {
					http.Error(a, "busy", http.StatusServiceUnavailable)
					return
				}
				next.ServeHTTP(a, req)
			})
		}
		i, err := w.run(false)
		if err == nil || !strings.Contains(err.Error(), "import r: the registry does not answer; run the import again to go on: refused with 503: Service Unavailable busy") {
			t.Errorf("error: %v", err)
		}
		if i.ManifestsSent.Load() > 2 || len(w.problems) > 0 {
			t.Errorf("%d manifests sent, problems %v", i.ManifestsSent.Load(), w.problems)
		}
		w.requests = func(next http.Handler) http.Handler { return next }
		if i, err = w.run(false); err != nil || i.ManifestsSent.Load() < 4 {
			t.Errorf("second run: %v, %d manifests", err, i.ManifestsSent.Load())
		}
		for n := range 6 {
			w.get(fmt.Sprint("r/manifests/v", n), imageOf(digest.FromString(fmt.Sprint("config", n))))
		}
		w.imports("manifests 6/6, sent 0, tags 0, blobs 0, mounted 0, unused 0, failed 0")
	})
}

// TestImportStopped: the user stops it during requests.
func TestImportStopped(t *testing.T) {
	each(t, func(w *world) {
		for n := range 6 {
			w.files.manifest("r", imageOf(w.files.layer("r", fmt.Sprint("config", n))))
		}
		ctx, stop := context.WithCancel(w.Context())
		w.requests = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(a http.ResponseWriter, req *http.Request) {
				if req.Method == http.MethodPut {
					stop()
					panic(http.ErrAbortHandler) // no answer
				}
				next.ServeHTTP(a, req)
			})
		}
		i := w.prepare(false)
		if err := i.Run(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "run it again to go on") {
			t.Errorf("error: %v", err)
		}
		if i.Manifests.Load() != 0 || len(w.problems) > 0 {
			t.Errorf("%d manifests dealt with, problems %v", i.Manifests.Load(), w.problems)
		}
		w.requests = func(next http.Handler) http.Handler { return next }
		if _, err := w.run(false); err != nil {
			t.Error(err)
		}
		w.imports("manifests 6/6, sent 0, tags 0, blobs 0, mounted 0, unused 0, failed 0")
	})
}

func TestImportUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	f := files{fstest.MapFS{}}
	f.manifest("r", "{}")
	i := New(Config{Tree: f.tree(t), URL: server.URL, Client: http.DefaultClient})
	if err := i.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "ask the registry at "+server.URL+": refused with 404") {
		t.Errorf("not a registry: %v", err)
	}
}
