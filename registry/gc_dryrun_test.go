package registry

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/sqldb"
)

// TestGCDryRun: the collector removes what the plan says, for random worlds.
func TestGCDryRun(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		for round := range uint64(3) {
			w.random(rand.New(rand.NewPCG(round, 42)), fmt.Sprint("x", round))
			w.compare()
		}
	})
}

// TestGCDryRunRemoved: all content of a repository that was deleted, and is not
// in the archive, is planned.
func TestGCDryRunRemoved(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.transact(func(b *sqldb.Batch) {
			b.Exec(insertTestObject, 1, "first")
			b.Exec(insertTestChange, 1, "first", []byte(testBody))
		})
		w.push(image{repo: "shop/web", name: "m", config: "c", layers: []string{"l", "shared"}, tags: []string{"t"}})
		w.push(image{repo: "shop/web", name: "list", children: []string{"m"}, tags: []string{"all"}})
		w.push(image{repo: "shop/web", name: "sbom", subject: "m"})
		w.push(image{repo: "shop/web", name: "sig", tags: []string{strings.Replace(w.digestOf("m"), ":", "-", 1) + ".sig"}})
		w.push(image{repo: "other", name: "m", layers: []string{"shared"}, tags: []string{"t"}})
		w.upload("shop/web", "begun", time.Now().Add(-48*time.Hour))
		w.exec(deleteTestObject)
		w.compare()
		w.want("other@m:t; shared")
	})
}

// random creates a world with much garbage.
func (w *gcWorld) random(r *rand.Rand, prefix string) {
	w.Helper()
	var names []string
	pick := func(n int) (some []string) {
		for range r.IntN(n + 1) {
			if len(names) > 0 {
				some = append(some, names[r.IntN(len(names))])
			}
		}
		slices.Sort(some)
		return slices.Compact(some)
	}
	for i := range 25 {
		m := image{repo: "r", name: fmt.Sprint(prefix, "m", i)}
		switch r.IntN(4) {
		case 0:
			m.children = pick(3)
		case 1:
			m.config = fmt.Sprint(prefix, "c", r.IntN(5))
		}
		for _, l := range r.Perm(12)[:r.IntN(4)] {
			m.layers = append(m.layers, fmt.Sprint(prefix, "l", l))
		}
		if subject := pick(1); len(subject) > 0 && r.IntN(2) == 0 {
			m.subject = subject[0]
		}
		switch r.IntN(5) {
		case 0:
			m.tags = []string{fmt.Sprint("t", r.IntN(4))} // often switched
		case 1:
			if image := pick(1); len(image) > 0 {
				m.tags = []string{strings.Replace(w.digestOf(image[0]), ":", "-", 1) + signatureSuffixes[r.IntN(3)]}
			}
		}
		w.push(m)
		names = append(names, m.name)
	}
	w.blob("r", prefix+"loose")
	w.upload("r", prefix+"abandoned", time.Now().Add(-48*time.Hour))
	w.push(image{repo: "held", name: prefix + "held", layers: []string{prefix + "held-layer", prefix + "l1"}})
	w.hold("held", true)
}

const (
	allManifests = `SELECT r.path || '@' || m.digest FROM manifests m JOIN repositories r ON r.id = m.repository_id`
	allBlobs     = `SELECT digest FROM blobs`
	allTags      = `SELECT r.path || ':' || t.name FROM tags t JOIN repositories r ON r.id = t.repository_id`
	allBytes     = `SELECT CAST((SELECT coalesce(sum(size), 0) FROM blobs) + (SELECT coalesce(sum(size), 0) FROM blob_uploads) AS bigint)`
)

// compare plans, collects, and compares.
func (w *gcWorld) compare() {
	w.Helper()
	plan, err := w.c.DryRun(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	before := []string{w.raw(allManifests), w.raw(allBlobs), w.raw(allTags)}
	bytes := w.count(allBytes)
	for range 10 { // the reviews of repositories on hold stay queued
		w.settle(25 * time.Hour)
	}
	var manifests, blobs, tags []string
	for _, m := range plan.Manifests {
		manifests = append(manifests, m.Repository+"@"+m.Digest)
	}
	for _, b := range plan.Blobs {
		blobs = append(blobs, b.Digest)
	}
	for _, tag := range plan.Tags {
		tags = append(tags, tag.Repository+":"+tag.Name)
	}
	if len(manifests) == 0 || len(blobs) == 0 || plan.Uploads != 1 {
		w.Errorf("the world is too small: %+v", plan)
	}
	for i, planned := range [][]string{manifests, blobs, tags} {
		gone := missing(before[i], w.raw([]string{allManifests, allBlobs, allTags}[i]))
		slices.Sort(planned)
		if diff := cmp.Diff(gone, planned); diff != "" {
			w.Errorf("what has gone, and what was planned (-gone +planned):\n%s", diff)
		}
	}
	if gone := bytes - w.count(allBytes); int64(gone) != plan.Bytes {
		w.Errorf("%d bytes have gone, %d were planned", gone, plan.Bytes)
	}
	w.check()
}

// missing returns what existed before and no longer does, sorted.
func missing(before, after string) (gone []string) {
	left := strings.Fields(after)
	for _, name := range strings.Fields(before) {
		if !slices.Contains(left, name) {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return gone
}

func TestGCStats(t *testing.T) {
	eachGC(t, func(w *gcWorld) {
		w.push(image{repo: "r", name: "m", layers: []string{"l"}})
		w.upload("r", "old", time.Now().Add(-48*time.Hour))
		w.upload("r", "new", time.Now())
		w.exec(`DELETE FROM blob_uploads WHERE id = 'new'`)
		s, err := w.c.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Manifests.Depth != 1 || s.Blobs.Depth != 1 || s.Blobs.Overdue != 0 || s.Unlinks.Depth != 1 || s.UnlinkBytes != 3 || s.Uploads != 1 || s.Abandoned != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}
