package registry_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/verify"
)

// TestRepair: the bytes of a blob are damaged or lost. Once marked, the blob is
// invisible, the next push replaces it, and all its images are intact again.
func TestRepair(t *testing.T) {
	const layer = "the layer of two images"
	damages := map[string]func(w *world, path string){
		"other bytes": func(w *world, _ string) {
			// A trigger queues the former path of a blob for removal.
			w.Exec(`UPDATE blobs SET path = $1, small = false WHERE digest = $2`, w.store(strings.ToUpper(layer)), sha256(layer))
		},
		"no bytes": func(w *world, path string) {
			if err := w.blobs.Remove(w.Context(), path); err != nil {
				w.Fatal(err)
			}
			w.Exec(`DELETE FROM small_blobs WHERE blob_id = (SELECT id FROM blobs WHERE digest = $1)`, sha256(layer))
		},
		"other bytes in the database": func(w *world, path string) {
			if err := w.blobs.Remove(w.Context(), path); err != nil {
				w.Fatal(err)
			}
			w.Exec(`UPDATE blobs SET small = true WHERE digest = $1`, sha256(layer))
			w.Exec(`INSERT INTO small_blobs (blob_id, content) VALUES ((SELECT id FROM blobs WHERE digest = $1), $2) ON CONFLICT (blob_id) DO UPDATE SET content = excluded.content`,
				sha256(layer), []byte(strings.ToUpper(layer)))
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			test := func(w *world) {
				m := w.image("a", "tag", layer, "")
				w.image("b", "", layer, "")
				damage(w, w.Strings(`SELECT path FROM blobs WHERE digest = '` + sha256(layer) + `'`)[0])
				problem := "blob-damaged "
				if name == "no bytes" {
					problem = "blob-missing "
				}
				w.wantFindings(verify.Options{}, problem+sha256(layer))
				w.blobHead("a", layer, 200) // not marked yet
				w.wantFindings(verify.Options{Repair: true}, problem+sha256(layer))
				w.damaged(m, layer)
				w.wantFindings(verify.Options{}, problem+sha256(layer))
				w.push("a", layer)
				w.blob("a", sha256(layer), layer)
				w.blob("b", sha256(layer), layer)
				w.tag("a", "again", ociManifest, m)
				w.wantFindings(verify.Options{})
			}
			each(t, test)
			eachSmall(t, test)
		})
	}
}

func (w *world) blobHead(repo, content string, status int) {
	w.Helper()
	w.want(status, "HEAD", "/v2/"+repo+"/blobs/"+sha256(content), nil, nil)
}

// damaged expects a blob of both repositories to be marked, and so to be
// invisible.
func (w *world) damaged(manifest, layer string) {
	w.Helper()
	for _, repo := range []string{"a", "b"} {
		w.blobHead(repo, layer, 404)
		a := w.refuses(404, registry.BlobUnknown, "GET", "/v2/"+repo+"/blobs/"+sha256(layer), nil, nil)
		if !strings.Contains(a.body, "lost or damaged: push it again") {
			w.Errorf("a damaged blob: %s", a.body)
		}
	}
	w.refuses(404, registry.ManifestBlobUnknown, "PUT", "/v2/a/manifests/new", headers{"Content-Type": ociManifest}, manifest)
	w.want(202, "POST", "/v2/c/blobs/uploads/?mount="+sha256(layer)+"&from=a", nil, nil)
	w.want(202, "POST", "/v2/c/blobs/uploads/?mount="+sha256(layer), nil, nil)
	w.want(200, "GET", "/v2/a/manifests/tag", nil, nil)
}

// TestRepairNamesImages: the finding says which image to push.
func TestRepairNamesImages(t *testing.T) {
	eachSmall(t, func(w *world) {
		w.image("a", "v1", "layer", "")
		untagged := w.image("b", "", "layer", "")
		w.Exec(`DELETE FROM small_blobs WHERE blob_id = (SELECT id FROM blobs WHERE digest = $1)`, sha256("layer"))
		var got string
		_, err := verify.Run(w.Context(), w.DB, w.blobs, verify.Options{Repair: true, Found: func(f verify.Finding) { got = f.Detail }})
		if want := "in a:v1, b@" + sha256(untagged); err != nil || !strings.Contains(got, want) || !strings.Contains(got, "marked") {
			w.Errorf("%q does not name %q: %v", got, want, err)
		}
		w.push("b", "layer")
	})
}

// TestRepairRestored: the bytes were restored in another way. The mark is
// removed.
func TestRepairRestored(t *testing.T) {
	each(t, func(w *world) {
		w.image("a", "tag", "layer", "")
		w.Exec(`UPDATE blobs SET damaged = true WHERE digest = $1`, sha256("layer"))
		for _, quick := range []bool{false, true} {
			w.wantFindings(verify.Options{Quick: quick}, "blob-damaged "+sha256("layer"))
		}
		w.wantFindings(verify.Options{Quick: true, Repair: true}, "blob-damaged "+sha256("layer")) // Quick does not read the bytes
		w.wantFindings(verify.Options{Repair: true})
		w.blob("a", sha256("layer"), "layer")
	})
}

// meeting calls a function before bytes are read for the first time.
type meeting struct {
	blobs
	meet func()
}

func (m *meeting) Open(ctx context.Context, path string, offset int64) (io.ReadCloser, error) {
	f, err := m.blobs.Open(ctx, path, offset)
	if m.meet != nil && err != nil {
		m.meet()
		m.meet = nil
	}
	return f, err
}

var _ blobstore.Walker = (*meeting)(nil)

// TestRepairMeetsPush: a marked blob is pushed while its lost bytes are checked
// again. The new bytes are not taken for the lost ones.
func TestRepairMeetsPush(t *testing.T) {
	each(t, func(w *world) {
		w.image("a", "tag", "layer", "")
		path := w.Strings(`SELECT path FROM blobs WHERE digest = '` + sha256("layer") + `'`)[0]
		if err := w.blobs.Remove(w.Context(), path); err != nil {
			w.Fatal(err)
		}
		w.wantFindings(verify.Options{Repair: true}, "blob-missing "+sha256("layer"))
		met := false
		store := &meeting{blobs: w.blobs, meet: func() { met = true; w.push("a", "layer") }}
		var found []string
		_, err := verify.Run(w.Context(), w.DB, store, verify.Options{
			Repair: true, Found: func(f verify.Finding) { found = append(found, f.String()) },
		})
		if diff := cmp.Diff([]string(nil), found); err != nil || !met || diff != "" {
			w.Errorf("met %v: %v, findings: %s", met, err, diff)
		}
		w.blob("a", sha256("layer"), "layer")
	})
}
