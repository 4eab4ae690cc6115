package collect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/registry/registrytest"
)

// TestGCDryRun: the collector removes what the plan says, for random worlds.
func TestGCDryRun(t *testing.T) {
	each(t, func(w *world) {
		for round := range uint64(3) {
			w.random(rand.New(rand.NewPCG(round, 42)), fmt.Sprint("x", round))
			w.compare()
		}
	})
}

// TestGCDryRunRemoved: all content of a repository that was deleted, and is not
// in the archive, is planned.
func TestGCDryRunRemoved(t *testing.T) {
	each(t, func(w *world) {
		w.Object()
		w.Push(image{Repo: "shop/web", Name: "m", Config: "c", Layers: []string{"l", "shared"}, Tags: []string{"t"}})
		w.Push(image{Repo: "shop/web", Name: "list", Children: []string{"m"}, Tags: []string{"all"}})
		w.Push(image{Repo: "shop/web", Name: "sbom", Subject: "m"})
		w.Push(image{Repo: "shop/web", Name: "sig", Tags: []string{strings.Replace(w.DigestOf("m"), ":", "-", 1) + ".sig"}})
		w.Push(image{Repo: "other", Name: "m", Layers: []string{"shared"}, Tags: []string{"t"}})
		w.upload("shop/web", "begun", time.Now().Add(-48*time.Hour))
		w.Exec(registrytest.DeleteObject)
		w.compare()
		w.Want("other@m:t; shared")
	})
}

// TestGCDryRunTags: the plan of tags has what their deletion adds to the garbage: not what
// another tag, list or repository uses, and also what only they and garbage use.
func TestGCDryRunTags(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "shop/web", Name: "old", Layers: []string{"base", "old"}, Tags: []string{"v1"}})
		w.Push(image{Repo: "shop/web", Name: "garbage", Layers: []string{"with-garbage", "waits"}})
		w.Push(image{Repo: "shop/web", Name: "m", Config: "c", Layers: []string{"own", "base", "elsewhere", "with-garbage"}, Tags: []string{"v2"}})
		w.Push(image{Repo: "shop/web", Name: "sbom", Layers: []string{"list-of-parts"}, Subject: "m"})
		w.Push(image{Repo: "shop/web", Name: "sig", Layers: []string{"signature"}, Tags: []string{strings.Replace(w.DigestOf("m"), ":", "-", 1) + ".sig"}})
		w.Push(image{Repo: "shop/api", Name: "other", Layers: []string{"elsewhere"}, Tags: []string{"v1"}})
		w.Push(image{Repo: "shop/api", Name: "twice", Layers: []string{"twice"}, Tags: []string{"v2", "latest"}})
		for _, c := range []struct{ repository, tag, manifests, blobs, tags string }{
			{"shop/web", "v1", "old", "old", ""},
			{"shop/web", "v2", "m sbom sig", "c list-of-parts own signature with-garbage", ".sig"},
			{"shop/api", "v2", "", "", ""}, // "latest" keeps it
			{"shop/api", "v2 latest v2", "twice", "twice", ""},
			{"shop/web", "v1 v2", "m old sbom sig", "base c list-of-parts old own signature with-garbage", ".sig"},
		} {
			plan, err := w.c.DryRunTags(w.Context(), c.repository, strings.Fields(c.tag)...)
			if err != nil || plan.After != 24*60*60 {
				w.Fatalf("after %d s, %v", plan.After, err)
			}
			var manifests, blobs, tags []string
			for _, m := range plan.Manifests {
				manifests = append(manifests, m.Digest)
			}
			size := int64(0)
			for _, b := range plan.Blobs {
				blobs, size = append(blobs, b.Digest), size+b.Size
			}
			for _, tag := range plan.Tags {
				tags = append(tags, tag.Name)
			}
			w.wantDigests("manifests of "+c.tag, c.manifests, manifests)
			w.wantDigests("blobs of "+c.tag, c.blobs, blobs)
			if !strings.HasSuffix(strings.Join(tags, " "), c.tags) || plan.Bytes != size {
				w.Errorf("%s: %d bytes, want %d; tags %q", c.tag, plan.Bytes, size, tags)
			}
		}
		if _, err := w.c.DryRunTags(w.Context(), "shop/web", "v1", "none"); err == nil || !strings.Contains(err.Error(), "shop/web has no tag none") {
			w.Errorf("a tag that does not exist: %v", err)
		}
	})
}

// wantDigests compares digests with those of names.
func (w *world) wantDigests(what, names string, got []string) {
	w.Helper()
	var want []string
	for _, name := range strings.Fields(names) {
		want = append(want, w.DigestOf(name))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// random creates a world with much garbage.
func (w *world) random(r *rand.Rand, prefix string) {
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
		m := image{Repo: "r", Name: fmt.Sprint(prefix, "m", i)}
		switch r.IntN(4) {
		case 0:
			m.Children = pick(3)
		case 1:
			m.Config = fmt.Sprint(prefix, "c", r.IntN(5))
		}
		for _, l := range r.Perm(12)[:r.IntN(4)] {
			m.Layers = append(m.Layers, fmt.Sprint(prefix, "l", l))
		}
		if subject := pick(1); len(subject) > 0 && r.IntN(2) == 0 {
			m.Subject = subject[0]
		}
		switch r.IntN(5) {
		case 0:
			m.Tags = []string{fmt.Sprint("t", r.IntN(4))} // often switched
		case 1:
			if image := pick(1); len(image) > 0 {
				m.Tags = []string{strings.Replace(w.DigestOf(image[0]), ":", "-", 1) + statement.SignatureSuffixes()[r.IntN(3)]}
			}
		}
		w.Push(m)
		names = append(names, m.Name)
	}
	w.Blob("r", prefix+"loose")
	w.upload("r", prefix+"abandoned", time.Now().Add(-48*time.Hour))
	w.Push(image{Repo: "held", Name: prefix + "held", Layers: []string{prefix + "held-layer", prefix + "l1"}})
	w.hold("held", true)
}

const (
	allManifests = `SELECT r.path || '@' || m.digest FROM manifests m JOIN repositories r ON r.id = m.repository_id`
	allBlobs     = `SELECT digest FROM blobs`
	allTags      = `SELECT r.path || ':' || t.name FROM tags t JOIN repositories r ON r.id = t.repository_id`
	allBytes     = `SELECT CAST((SELECT coalesce(sum(size), 0) FROM blobs) + (SELECT coalesce(sum(size), 0) FROM blob_uploads) AS bigint)`
)

// compare plans, collects, and compares.
func (w *world) compare() {
	w.Helper()
	plan, err := w.c.DryRun(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	before := [][]string{w.Strings(allManifests), w.Strings(allBlobs), w.Strings(allTags)}
	bytes := w.Count(allBytes)
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
		w.Errorf("the plan is too small for a test: %+v", plan)
	}
	for i, planned := range [][]string{manifests, blobs, tags} {
		gone := missing(before[i], w.Strings([]string{allManifests, allBlobs, allTags}[i]))
		slices.Sort(planned)
		if diff := cmp.Diff(gone, planned); diff != "" {
			w.Errorf("removed and planned items differ (-removed +planned):\n%s", diff)
		}
	}
	if gone := bytes - w.Count(allBytes); int64(gone) != plan.Bytes {
		w.Errorf("%d bytes were removed, %d were planned", gone, plan.Bytes)
	}
	w.Check()
}

// missing returns what existed before and no longer does, sorted.
func missing(before, after []string) (gone []string) {
	for _, name := range before {
		if !slices.Contains(after, name) {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return gone
}

func TestGCStats(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "m", Layers: []string{"l"}})
		w.upload("r", "old", time.Now().Add(-48*time.Hour))
		w.upload("r", "new", time.Now())
		w.Exec(`DELETE FROM blob_uploads WHERE id = 'new'`)
		s, err := w.c.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Manifests.Depth != 1 || s.Blobs.Depth != 1 || s.Blobs.Overdue != 0 || s.Unlinks.Depth != 1 || s.UnlinkBytes != 3 || s.Uploads != 1 || s.Abandoned != 1 || s.Reclaimed != 0 {
			t.Errorf("stats %+v", s)
		}
		// To six o'clock, by one to thirteen hours: midnight must not come between, and the
		// reviews of a minute must be due, and those of a day not.
		w.clock.Advance(time.Until(time.Now().Add(-5 * time.Hour).Truncate(12 * time.Hour).Add(18 * time.Hour)))
		w.Exec(`UPDATE gc_unlink_queue SET review_after = 0`)
		if _, err := w.c.RunOne(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, err = w.c.Stats(t.Context()); err != nil || s.Reclaimed != 6 {
			t.Errorf("stats %+v, %v, want the bytes of both uploads given back", s, err)
		}
		w.clock.Advance(24 * time.Hour)
		if s, err = w.c.Stats(t.Context()); err != nil || s.Reclaimed != 0 {
			t.Errorf("stats %+v, %v, want no bytes given back on the next day", s, err)
		}
	})
}
