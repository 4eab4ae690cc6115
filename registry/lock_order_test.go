package registry_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestLockOrder: requests that change the same tags and reviews do not deadlock,
// on PostgreSQL. Each case holds some rows until all requests wait, in a given
// order. With another lock order they would then deadlock. world.send fails on a
// deadlock, because the test's logger does.
func TestLockOrder(t *testing.T) {
	const tags = `SELECT 1 FROM tags FOR UPDATE`
	queued := func(digest string) string {
		return fmt.Sprintf(`SELECT 1 FROM gc_manifest_review_queue WHERE manifest LIKE '%%@%s' FOR UPDATE`, digest)
	}
	one, two := manifestOf("{}", "one", ""), manifestOf("{}", "two", "")
	list := indexOf("", one)
	signature := "sha256-" + sha256(one)[len("sha256:"):] + ".sig"
	put := func(tag, manifest string) func(w *world) {
		return func(w *world) {
			mediaType := ociManifest
			if manifest == list {
				mediaType = ociIndex
			}
			w.tag("r", tag, mediaType, manifest)
		}
	}
	remove := func(reference string) func(w *world) {
		return func(w *world) { w.want(202, "DELETE", "/v2/r/manifests/"+reference, nil, nil) }
	}
	for name, c := range map[string]struct {
		before   []func(w *world)
		hold     string
		requests []func(w *world)
	}{
		"two tags change places":             {[]func(*world){put("x", two), put("y", one)}, tags, []func(*world){put("x", one), put("y", two)}},
		"a tag is pushed twice":              {[]func(*world){put("x", two)}, tags, []func(*world){put("x", one), put("x", two)}},
		"a tag is deleted and pushed":        {[]func(*world){put("x", one)}, queued(sha256(one)), []func(*world){put("x", one), remove("x")}},
		"a tag is deleted and switched":      {[]func(*world){put("x", one)}, queued(sha256(one)), []func(*world){put("x", two), remove("x")}},
		"an image goes and is signed":        {[]func(*world){put("x", one), put(signature, two)}, queued(sha256(two)), []func(*world){put(signature, two), remove(sha256(one))}},
		"a list goes and replaces its image": {[]func(*world){put("x", one), put("l", list)}, queued(sha256(one)), []func(*world){put("x", list), remove(sha256(list))}},
		"a tag goes that an image takes too": {[]func(*world){put("x", one), put(signature, two)}, queued(sha256(two)), []func(*world){remove(signature), remove(sha256(one))}},
		"images go that share all they have": {[]func(*world){put("x", one), put("y", two)}, `SELECT 1 FROM gc_blob_review_queue FOR UPDATE`, []func(*world){remove(sha256(one)), remove(sha256(two))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, dbtest.OpenDB(t, sqldb.Postgres), registry.Config{})
			for _, content := range []string{"{}", "one", "two"} {
				w.push("r", content)
			}
			put("", one)(w)
			put("", two)(w)
			for _, step := range c.before {
				step(w)
			}
			release := w.hold(c.hold)
			var together sync.WaitGroup
			for i, request := range c.requests {
				together.Go(func() { request(w) })
				w.waiting(i + 1)
			}
			release()
			together.Wait()
			w.check()
		})
	}
}

// hold locks some rows in a transaction, and returns the function that ends it.
func (w *world) hold(statement string) (release func()) {
	w.Helper()
	tx, err := w.DB.Begin(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	var b sqldb.Batch
	held := 0
	b.Query(func(row sqldb.Row) error { held++; return row.Scan(new(int)) }, statement)
	if err := tx.Send(w.Context(), &b); err != nil || held == 0 {
		w.Fatalf("%d rows are held: %v", held, err)
	}
	w.Cleanup(tx.Rollback) // does nothing after a commit
	return func() {
		if err := tx.Commit(w.Context()); err != nil {
			w.Error(err)
		}
	}
}

// waiting returns when n connections wait for a lock.
func (w *world) waiting(n int) {
	w.Helper()
	dbtest.Until(w, "requests wait", func() error {
		if got := w.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`); got < n {
			return fmt.Errorf("%d requests wait, not %d", got, n)
		}
		return nil
	})
}

// TestRaceUndeleteOfATag: a tag is undeleted while a push of it is under way. The undelete
// waits for the push, sees the tag, and leaves it.
func TestRaceUndeleteOfATag(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.OpenDB(t, sqldb.Postgres), registry.Config{})
	one, two := w.image("r", "v1", "one", ""), w.image("r", "", "two", "")
	w.want(202, "DELETE", "/v2/r/manifests/v1", nil, nil)
	release := w.hold(fmt.Sprintf(`SELECT 1 FROM gc_manifest_review_queue WHERE manifest LIKE '%%@%s' FOR UPDATE`, sha256(two)))
	var together sync.WaitGroup
	together.Go(func() { w.tag("r", "v1", ociManifest, two) })
	w.waiting(1)
	together.Go(func() { w.cannotUndelete("r", "v1", sha256(one), "points at "+sha256(two)) })
	w.waiting(2)
	release()
	together.Wait()
	w.tagged("r", "v1", two)
	w.check()
}
