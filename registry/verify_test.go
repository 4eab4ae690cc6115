package registry_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/registry/verify"
)

// verify runs Verify and returns its findings as problem and subject.
func (w *world) verify(o verify.Options) []string {
	w.Helper()
	var found []string
	o.Found = func(f verify.Finding) { found = append(found, string(f.Problem)+" "+f.Subject) }
	sum, err := verify.Run(w.Context(), w.DB, w.blobs, o)
	if err != nil {
		w.Fatal(err)
	}
	if int(sum.Findings) != len(found) {
		w.Errorf("%d findings are counted, %d were reported", sum.Findings, len(found))
	}
	slices.Sort(found)
	return found
}

func (w *world) wantFindings(o verify.Options, want ...string) {
	w.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, w.verify(o)); diff != "" {
		w.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestVerifyClean: a list, a referrer, an untagged image, an unfinished upload
// and a queued path are no findings.
func TestVerifyClean(t *testing.T) {
	test := func(w *world) {
		m := w.image("a", "tag", "layer", "")
		w.tag("a", "list", ociIndex, indexOf("", m))
		w.image("a", "", "untagged", "")
		w.push("a", "unused")
		w.want(202, "PATCH", w.begin("a"), nil, strings.Repeat("goes on", 1<<20))
		at := w.begin("a")
		w.want(202, "PATCH", at, nil, "cancelled")
		w.want(204, "DELETE", at, nil, nil)
		w.wantFindings(verify.Options{})
		w.wantFindings(verify.Options{Quick: true})
	}
	each(t, test)
	eachSmall(t, test)
}

// TestVerifyFinds: each kind of damage is found and named, and nothing else.
func TestVerifyFinds(t *testing.T) {
	each(t, func(w *world) {
		layer := "the layer of the image"
		m := w.image("a", "tag", layer, "")
		w.image("b", "tag", "another layer", "")
		path := w.Strings(`SELECT path FROM blobs WHERE digest = '` + sha256(layer) + `'`)[0]
		orphan := w.store("unknown bytes")
		damaged := w.store("the layer of the imagX")
		short, long := w.store("short"), w.store(layer+", and more")
		move := func(to string) { w.Exec(`UPDATE blobs SET path = $1 WHERE digest = $2`, to, sha256(layer)) }

		w.wantFindings(verify.Options{}, "bytes-unknown "+orphan, "bytes-unknown "+damaged, "bytes-unknown "+short, "bytes-unknown "+long)
		// A trigger queues the former path of a blob for removal.
		move(damaged)
		w.wantFindings(verify.Options{}, "blob-damaged "+sha256(layer), "bytes-unknown "+orphan, "bytes-unknown "+short, "bytes-unknown "+long)
		w.wantFindings(verify.Options{Quick: true}, "bytes-unknown "+orphan, "bytes-unknown "+short, "bytes-unknown "+long)
		move(short)
		for _, quick := range []bool{false, true} {
			w.wantFindings(verify.Options{Quick: quick}, "blob-damaged "+sha256(layer), "bytes-unknown "+orphan, "bytes-unknown "+long)
		}
		move(long)
		for _, quick := range []bool{false, true} {
			w.wantFindings(verify.Options{Quick: quick}, "blob-damaged "+sha256(layer), "bytes-unknown "+orphan)
		}
		move("00/" + strings.Repeat("0", 32))
		for _, quick := range []bool{false, true} {
			w.wantFindings(verify.Options{Quick: quick}, "blob-missing "+sha256(layer), "bytes-unknown "+orphan)
		}
		move(path)
		if err := w.blobs.Remove(w.Context(), orphan); err != nil {
			w.Fatal(err)
		}
		w.wantFindings(verify.Options{})

		w.Exec(`UPDATE manifests SET payload = $1 WHERE digest = $2`, []byte(m+" "), sha256(m))
		w.wantFindings(verify.Options{Quick: true}, "manifest-damaged a@"+sha256(m))
		w.Exec(`UPDATE manifests SET payload = $1 WHERE digest = $2`, []byte(m), sha256(m))
		w.Exec(`DELETE FROM tags`)
		w.push("a", "unused")
		w.Exec(`DELETE FROM gc_manifest_review_queue WHERE manifest LIKE '%' || $1`, sha256(m))
		w.Exec(`DELETE FROM gc_blob_review_queue WHERE digest = $1`, sha256("unused"))
		w.wantFindings(verify.Options{Quick: true}, "never-reviewed a@"+sha256(m), "never-reviewed "+sha256("unused"))
		w.push("a", "unused") // which queues it again
	})
}

// store stores bytes directly, without the registry.
func (w *world) store(text string) (path string) {
	w.Helper()
	upload, err := w.blobs.Create(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	_, err = io.WriteString(upload, text)
	if err := errors.Join(err, upload.Finish(), upload.Close()); err != nil {
		w.Fatal(err)
	}
	return upload.Path()
}

// TestVerifyOnline: concurrent changes are never findings.
func TestVerifyOnline(t *testing.T) {
	each(t, func(w *world) {
		stop := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				w.image("a", "tag", "layer", "")
				w.want(202, "DELETE", "/v2/a/manifests/tag", nil, nil)
				// Like the collector, without its delays.
				w.Exec(`DELETE FROM manifests`)
				w.Exec(`DELETE FROM blobs`)
				for _, path := range w.Strings(`SELECT path FROM gc_unlink_queue`) {
					if err := w.blobs.Remove(w.Context(), path); err != nil {
						w.Error(err)
					}
					w.Exec(`DELETE FROM gc_unlink_queue WHERE path = $1`, path)
				}
			}
		})
		for range 5 {
			w.wantFindings(verify.Options{})
		}
		close(stop)
		running.Wait()
	})
}
