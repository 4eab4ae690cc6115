package registry_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/exeunt/exeunt/registry"
)

// TestListsInACircle: a list is pushed after its manifests, and its digest
// covers theirs. So a cycle needs a forged digest, which is refused.
func TestListsInACircle(t *testing.T) {
	each(t, func(w *world) {
		w.push("a", "x")
		before := w.counts()
		h := headers{"Content-Type": ociIndex}
		one, two := sha256("one"), sha256("two")
		listing := func(d string) string {
			return `{"schemaVersion":2,"manifests":[` + descriptor(ociIndex, d, 1) + `]}`
		}
		w.refuses(400, registry.DigestInvalid, "PUT", "/v2/a/manifests/"+one, h, listing(one))
		w.refuses(400, registry.DigestInvalid, "PUT", "/v2/a/manifests/"+one, h, listing(two))
		w.refuses(404, registry.ManifestBlobUnknown, "PUT", "/v2/a/manifests/one", h, listing(two))
		w.refuses(404, registry.ManifestBlobUnknown, "PUT", "/v2/a/manifests/two", h, listing(sha256(listing(two))))
		w.wantCounts(before)
	})
}

// TestListsNested: lists may be nested to any depth; nothing recurses into them.
func TestListsNested(t *testing.T) {
	const depth = 100
	each(t, func(w *world) {
		m := w.image("a", "", "layer", "")
		inner := m
		for range depth {
			list := strings.Replace(indexOf("", inner), ociManifest, ociIndex, 1)
			if inner == m {
				list = indexOf("", m)
			}
			w.tag("a", "latest", ociIndex, list)
			inner = list
		}
		if a := w.want(200, "GET", "/v2/a/manifests/latest", nil, nil); a.body != inner {
			w.Error("other bytes")
		}
		w.refuses(405, registry.Unsupported, "DELETE", "/v2/a/manifests/"+sha256(m), nil, nil)
		w.want(202, "DELETE", "/v2/a/manifests/"+sha256(inner), nil, nil)
		w.wantCounts("blobs 2, blob_uploads 0, manifests 100, tags 0")
	})
}

// TestManifestDeepJSON: deep nesting in fields that the registry does not read.
func TestManifestDeepJSON(t *testing.T) {
	each(t, func(w *world) {
		w.push("a", "{}")
		w.push("a", "layer")
		before := w.counts()
		for _, deep := range []string{strings.Repeat(`[`, 1<<20), strings.Repeat(`{"x":`, 1<<19), strings.Repeat(`[`, 1<<20) + strings.Repeat(`]`, 1<<20)} {
			w.refuses(400, registry.ManifestInvalid, "PUT", "/v2/a/manifests/deep", headers{"Content-Type": ociManifest}, manifestOf("{}", "layer", `,"x":`+deep))
		}
		w.wantCounts(before)
	})
}

// TestManifestBreaksOff: a truncated manifest is refused, even if it is valid
// JSON.
func TestManifestBreaksOff(t *testing.T) {
	each(t, func(w *world) {
		m := w.image("a", "v1", "layer", "")
		before := w.counts()
		w.breakOff("PUT", "/v2/a/manifests/v2", len(m)+1, m)
		w.wantCounts(before)
		w.refuses(404, registry.ManifestUnknown, "GET", "/v2/a/manifests/v2", nil, nil)
	})
}

// TestManifestMediaTypes: a manifest may name many new types, which are stored
// in one transaction, but their number is limited, because their rows are never
// deleted.
func TestManifestMediaTypes(t *testing.T) {
	each(t, func(w *world) {
		w.push("a", "{}")
		w.push("a", "layer")
		types := func(prefix string, n int) string {
			layers := make([]string, n)
			for i := range layers {
				layers[i] = descriptor(fmt.Sprintf("application/%s.%d", prefix, i), sha256("layer"), 5)
			}
			return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]}`,
				ociManifest, descriptor("application/x.config", sha256("{}"), 2), strings.Join(layers, ","))
		}
		count := func(prefix string) (n int) {
			if _, err := w.DB.Row(w.Context(), `SELECT count(*) FROM media_types WHERE media_type LIKE $1`, []any{"application/" + prefix + ".%"}, &n); err != nil {
				w.Fatal(err)
			}
			return n
		}
		h := headers{"Content-Type": ociManifest}
		w.refuses(400, registry.ManifestInvalid, "PUT", "/v2/a/manifests/many", h, types("many", 5000))
		if n := count("many"); n != 0 {
			w.Errorf("%d types of a manifest that was refused are stored", n)
		}
		w.want(201, "PUT", "/v2/a/manifests/some", h, types("some", 400))
		w.want(201, "PUT", "/v2/a/manifests/again", h, types("some", 498))
		if n := count("some"); n != 498 {
			w.Errorf("%d types are stored, want 498", n)
		}
	})
}

// TestManifestMediaTypesAtOnce: concurrent pushes with the same new types all
// succeed, and each type is stored once.
func TestManifestMediaTypesAtOnce(t *testing.T) {
	eachSmall(t, func(w *world) {
		const pushes, types = 8, 50
		var done sync.WaitGroup
		for i := range pushes {
			repo := fmt.Sprint("r", i)
			w.push(repo, "{}")
			w.push(repo, "layer")
			layers := make([]string, types)
			for n := range layers {
				// Each begins at another type.
				layers[n] = descriptor(fmt.Sprintf("application/new.%d", (n+i*7)%types), sha256("layer"), 5)
			}
			m := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]}`, ociManifest, descriptor(ociConfig, sha256("{}"), 2), strings.Join(layers, ","))
			done.Go(func() {
				if a := w.send("PUT", "/v2/"+repo+"/manifests/v1", headers{"Content-Type": ociManifest}, m); a.status != 201 {
					w.Errorf("%s: answered %d %s", repo, a.status, a.body)
				}
			})
		}
		done.Wait()
		var n int
		if _, err := w.DB.Row(w.Context(), `SELECT count(*) FROM media_types WHERE media_type LIKE 'application/new.%'`, nil, &n); err != nil || n != types {
			w.Errorf("%d types are stored, want %d: %v", n, types, err)
		}
	})
}
