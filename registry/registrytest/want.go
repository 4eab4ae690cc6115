package registrytest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Lines reads rows of text as one line each, sorted, with digests replaced by
// their names.
func (w *World) Lines(statement string, args ...any) string {
	w.Helper()
	list := w.Strings(statement, args...)
	for i, text := range list {
		for digest, name := range w.Names {
			text = strings.ReplaceAll(text, digest, name)
		}
		for name, path := range w.Paths {
			text = strings.ReplaceAll(text, path, "bytes-of-"+name)
		}
		for path, id := range w.Repos {
			if number, rest, ok := strings.Cut(text, "@"); ok && number == fmt.Sprint(id) {
				text = path + "@" + rest
			}
		}
		list[i] = text
	}
	slices.Sort(list)
	return strings.Join(list, "; ")
}

// WantLines compares Lines.
func (w *World) WantLines(what, want, statement string, args ...any) {
	w.Helper()
	if diff := cmp.Diff(want, w.Lines(statement, args...)); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// WantBlobQueue compares a queue as text: key, event, time from now, and whether it
// is claimed.
func (w *World) WantBlobQueue(want string) {
	w.Helper()
	w.WantQueue("gc_blob_review_queue", "digest", want)
}

// WantManifestQueue is WantBlobQueue for manifests.
func (w *World) WantManifestQueue(want string) {
	w.Helper()
	w.WantQueue("gc_manifest_review_queue", "manifest", want)
}

// WantUnlinkQueue is WantBlobQueue for paths.
func (w *World) WantUnlinkQueue(want string) {
	w.Helper()
	w.WantQueue("gc_unlink_queue", "path", want)
}

// WantQueue is WantBlobQueue for any queue.
func (w *World) WantQueue(table, key, want string) {
	w.Helper()
	// Rounded to even minutes, and 1m for the next 75 seconds: the jitter in tests is less
	// than a minute, unless a test says otherwise, and the test may be 45 seconds late.
	statement := fmt.Sprintf(`SELECT %s || ' ' || event || ' ' ||
		CASE WHEN review_after < CAST($1 AS bigint) + 1000 THEN 'due' WHEN review_after < CAST($1 AS bigint) + 75000 THEN '1m' ELSE CAST((review_after - $1 + 60000) / 120000 * 2 AS text) || 'm' END ||
		CASE WHEN claim_token IS NULL THEN '' ELSE ' claimed' END FROM %s`, key, table)
	w.WantLines(table, want, statement, time.Now().UnixMilli())
}

// Want compares the manifests, with their tags, and the blobs.
func (w *World) Want(want string) {
	w.Helper()
	w.WantLines("manifests and blobs", want, `
		SELECT CAST(m.repository_id AS text) || '@' || m.digest || coalesce((SELECT ':' || min(t.name) FROM tags t WHERE t.manifest_id = m.id), '') FROM manifests m
		UNION ALL SELECT digest FROM blobs`)
}

// Check checks the invariants of a registry with empty queues: every row has its
// bytes, and all bytes have a row.
func (w *World) Check() {
	w.Helper()
	known := map[string]bool{}
	for _, path := range w.Strings(`SELECT path FROM blobs`) {
		known[path] = true
		if _, err := w.Store.Stat(w.Context(), path); err != nil {
			w.Errorf("a row points at missing bytes: %v", err)
		}
	}
	err := w.Store.Walk(w.Context(), func(path string, _ int64, _ time.Time) error {
		if !known[path] {
			w.Errorf("bytes at %s have no row", path)
		}
		return nil
	})
	if err != nil {
		w.Error(err)
	}
}
