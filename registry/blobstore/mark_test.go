package blobstore_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/blobstore/s3test"
)

// TestMark: a store keeps the id of its database, and replaces it only when told
// to.
func TestMark(t *testing.T) {
	for name, location := range map[string]string{"directory": filepath.Join(t.TempDir(), "blobs"), "S3": s3test.Location(t)} {
		t.Run(name, func(t *testing.T) {
			s := openAt(t, location).(blobstore.Marked)
			wantMark := func(want string) {
				t.Helper()
				if got, err := openAt(t, location).(blobstore.Marked).Mark(t.Context()); err != nil || got != want {
					t.Errorf("the mark is %q (%v), not %q", got, err, want)
				}
			}
			wantMark("")
			must(t, s.SetMark(t.Context(), "one", false))
			wantMark("one")
			if err := s.SetMark(t.Context(), "two", false); !errors.Is(err, blobstore.ErrMarked) {
				t.Errorf("a second mark: %v", err)
			}
			wantMark("one")
			must(t, s.SetMark(t.Context(), "two", true))
			wantMark("two")
			if used, err := s.Used(t.Context()); err != nil || used {
				t.Errorf("a mark counts as bytes: %v, %v", used, err)
			}
			wantPaths(t, s)
			w := create(t, s)
			write(t, w, "bytes")
			must(t, w.Finish(), w.Close())
			if used, err := s.Used(t.Context()); err != nil || !used {
				t.Errorf("bytes are not seen: %v, %v", used, err)
			}
			wantPaths(t, s, w.Path())
		})
	}
}

// TestDamagedMark: an unreadable mark is an error, not a missing mark.
func TestDamagedMark(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	for _, content := range []string{"", "half an i"} {
		must(t, os.WriteFile(filepath.Join(dir, ".exeunt-id"), []byte(content), 0o600))
		if id, err := d.Mark(t.Context()); err == nil || !strings.Contains(err.Error(), ".exeunt-id") {
			t.Errorf("%q is read as %q: %v", content, id, err)
		}
	}
}

// TestMarkCutOff: an id that is read in part is an error, not a missing mark, and not a shorter one.
func TestMarkCutOff(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
		_, _ = w.Write([]byte("half an i"))
	}))
	defer server.Close()
	s := openAt(t, s3test.Through(t, s3test.Location(t), server.URL)).(blobstore.Marked)
	if id, err := s.Mark(t.Context()); err == nil {
		t.Errorf("it is read as %q", id)
	}
}
