package registry_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/collect"
)

// undelete restores a tag or manifest, and returns what was restored.
func (w *world) undelete(repo, tag, d string) string {
	w.Helper()
	return w.undeleteBy(false, repo, tag, d)
}

// undeleteBy is undelete, and moves tags or not.
func (w *world) undeleteBy(moving bool, repo, tag, d string) string {
	w.Helper()
	list, err := w.registry.Undelete(w.Context(), repo, tag, d, moving)
	if err != nil {
		w.Fatalf("undelete %s %s %s: %v", repo, tag, d, err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Tag)
	}
	return strings.Join(names, " ")
}

// cannotUndelete expects a refusal.
func (w *world) cannotUndelete(repo, tag, d, why string) {
	w.Helper()
	_, err := w.registry.Undelete(w.Context(), repo, tag, d, false)
	var refused *registry.Error
	if !errors.As(err, &refused) || !strings.Contains(refused.Message, why) {
		w.Errorf("undelete %s %s %s: %v; want %q", repo, tag, d, err, why)
	}
}

// deleted lists what can be restored.
func (w *world) deleted(want string) {
	w.Helper()
	list, err := w.registry.Deleted(w.Context(), "")
	if err != nil {
		w.Fatal(err)
	}
	var got []string
	for _, d := range list {
		got = append(got, fmt.Sprintf("%s:%s %s", d.Repository, d.Tag, d.Event))
	}
	if text := strings.Join(got, ", "); text != want {
		w.Errorf("restorable: %s; want %s", text, want)
	}
}

// tagged expects a tag to point at a manifest.
func (w *world) tagged(repo, tag, manifest string) {
	w.Helper()
	if a := w.want(200, "GET", "/v2/"+repo+"/manifests/"+tag, nil, nil); a.body != manifest {
		w.Errorf("%s:%s is %s", repo, tag, a.body)
	}
}

func TestUndeleteTag(t *testing.T) {
	each(t, func(w *world) {
		m := w.image("shop/web", "v1", "layer", "")
		w.deleted("")
		w.want(202, "DELETE", "/v2/shop/web/manifests/v1", nil, nil)
		w.deleted("shop/web:v1 tag_delete")
		w.cannotUndelete("shop/web", "v2", "", "no such tag or manifest was deleted")
		w.cannotUndelete("shop/api", "v1", "", "there is no repository")
		w.cannotUndelete("shop/web", "v1", sha256("x"), "no such tag or manifest was deleted")
		if got := w.undelete("shop/web", "v1", ""); got != "v1" {
			w.Errorf("brought back %q", got)
		}
		w.tagged("shop/web", "v1", m)
		w.deleted("")
		w.cannotUndelete("shop/web", "v1", "", "no such tag or manifest was deleted")
	})
}

// TestUndeleteSwitch: a tag is restored to its former manifest, and back again, if the
// client says that it may move.
func TestUndeleteSwitch(t *testing.T) {
	each(t, func(w *world) {
		first := w.image("shop/web", "latest", "one", "")
		second := w.image("shop/web", "latest", "two", "")
		w.deleted("shop/web:latest tag_switch")
		w.cannotUndelete("shop/web", "latest", "", "points at "+sha256(second))
		w.undeleteBy(true, "shop/web", "latest", "")
		w.tagged("shop/web", "latest", first)
		w.undeleteBy(true, "shop/web", "latest", "")
		w.tagged("shop/web", "latest", second)
		third := w.image("shop/web", "latest", "three", "")
		w.cannotUndelete("shop/web", "latest", sha256(first), "points at "+sha256(third))
		w.undeleteBy(true, "shop/web", "latest", sha256(first))
		w.tagged("shop/web", "latest", first)
	})
}

// TestUndeleteLeavesNewTags: a tag that was pushed after its deletion stays, and so do the
// tags of new signatures. The refusal writes nothing.
func TestUndeleteLeavesNewTags(t *testing.T) {
	each(t, func(w *world) {
		m := w.image("shop/web", "v1", "layer", "")
		signature := strings.Replace(sha256(m), ":", "-", 1) + ".sig"
		w.image("shop/web", signature, "signature", "")
		w.want(202, "DELETE", "/v2/shop/web/manifests/"+sha256(m), nil, nil)
		again := w.image("shop/web", "v1", "pushed after the delete", "")
		w.cannotUndelete("shop/web", "v1", "", "points at "+sha256(again))
		w.tagged("shop/web", "v1", again)
		w.want(404, "GET", "/v2/shop/web/manifests/"+sha256(m), nil, nil)

		signed := w.image("shop/web", signature, "signed again", "")
		w.undeleteBy(true, "shop/web", "v1", "")
		w.tagged("shop/web", "v1", m)
		w.tagged("shop/web", signature, signed)
	})
}

// TestUndeleteManifest: a deleted manifest is restored byte for byte, with its
// signature and its tags, except tags that are in use again.
func TestUndeleteManifest(t *testing.T) {
	each(t, func(w *world) {
		m := w.image("shop/web", "v1", "layer", "")
		w.tag("shop/web", "stable", ociManifest, m)
		w.tag("shop/web", "latest", ociManifest, m)
		signature := strings.Replace(sha256(m), ":", "-", 1) + ".sig"
		sig := w.image("shop/web", signature, "signature", "")
		w.want(202, "DELETE", "/v2/shop/web/manifests/"+sha256(m), nil, nil)
		w.want(404, "GET", "/v2/shop/web/manifests/v1", nil, nil)
		w.want(404, "GET", "/v2/shop/web/manifests/"+signature, nil, nil)
		other := w.image("shop/web", "latest", "other", "")
		if got := w.undelete("shop/web", "", sha256(m)); got != "stable v1 "+signature && got != "v1 stable "+signature {
			w.Errorf("brought back %q", got)
		}
		w.tagged("shop/web", "v1", m)
		w.tagged("shop/web", "stable", m)
		w.tagged("shop/web", "latest", other)
		w.tagged("shop/web", sha256(m), m)
		w.tagged("shop/web", signature, sig)
		w.deleted("shop/web:latest manifest_delete")
	})
}

// TestUndeleteUntagged: a manifest without tags is restored alone; a restored
// index finds its manifests.
func TestUndeleteUntagged(t *testing.T) {
	each(t, func(w *world) {
		child := w.image("shop/web", "", "layer", "")
		index := indexOf("", child)
		w.tag("shop/web", "", ociIndex, index)
		w.want(202, "DELETE", "/v2/shop/web/manifests/"+sha256(index), nil, nil)
		w.want(202, "DELETE", "/v2/shop/web/manifests/"+sha256(child), nil, nil)
		w.cannotUndelete("shop/web", "", sha256(index), "has been collected")
		w.undelete("shop/web", "", sha256(child))
		w.undelete("shop/web", "", sha256(index))
		w.tagged("shop/web", sha256(index), index)
		w.tagged("shop/web", sha256(child), child)
		w.deleted("")
	})
}

// TestUndeleteAfterLong: anything that was not collected can be restored after
// any time: its repository is on hold, or manifests are not collected.
func TestUndeleteAfterLong(t *testing.T) {
	for name, o := range map[string]collect.Options{"hold": {}, "switched off": {KeepManifests: true}} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				now := time.Now()
				options := o
				options.Now = func() time.Time { return now }
				c, err := collect.New(w.DB, w.blobs, options)
				if err != nil {
					w.Fatal(err)
				}
				m := w.image("shop/web", "v1", "layer", "")
				want := "shop/web:v1 tag_delete"
				if name == "hold" {
					w.Exec(`UPDATE repositories SET gc_hold = true`)
					d := w.image("shop/web", "v2", "other", "")
					w.want(202, "DELETE", "/v2/shop/web/manifests/"+sha256(d), nil, nil)
					want += ", shop/web:v2 manifest_delete"
				}
				w.want(202, "DELETE", "/v2/shop/web/manifests/v1", nil, nil)
				for range 5 {
					now = now.Add(25 * time.Hour)
					if _, err := c.RunOne(w.Context()); err != nil {
						w.Fatal(err)
					}
					if n, err := c.ForgetDeleted(w.Context()); n != 0 || err != nil {
						w.Fatalf("forgot %d, error %v", n, err)
					}
				}
				w.deleted(want)
				w.undelete("shop/web", "v1", "")
				w.tagged("shop/web", "v1", m)
				if name == "hold" {
					w.undelete("shop/web", "v2", "")
				}
				w.deleted("")
				w.Exec(`UPDATE repositories SET gc_hold = false`)
				w.Exec(`DELETE FROM gc_manifest_review_queue`) // its reviews have come, and found the tags
				if n, err := c.ForgetDeleted(w.Context()); n == 0 || err != nil {
					w.Errorf("forgot %d, error %v", n, err)
				}
			})
		})
	}
}

// TestUndeleteCollected: collected content cannot be restored, is not listed,
// and its record is deleted in the end.
func TestUndeleteCollected(t *testing.T) {
	each(t, func(w *world) {
		now := time.Now()
		c, err := collect.New(w.DB, w.blobs, collect.Options{Now: func() time.Time { return now }})
		if err != nil {
			w.Fatal(err)
		}
		collect := func() {
			w.Helper()
			for range 20 {
				turn, err := c.RunOne(w.Context())
				if err != nil {
					w.Fatal(err)
				}
				if turn.Idle() {
					return
				}
			}
			w.Fatal("it does not end")
		}
		m := w.image("shop/web", "v1", "layer", "")
		w.want(202, "DELETE", "/v2/shop/web/manifests/v1", nil, nil)
		d := w.image("shop/web", "v2", "other", "")
		w.want(202, "DELETE", "/v2/shop/web/manifests/"+sha256(d), nil, nil)
		if n, err := c.ForgetDeleted(w.Context()); n != 0 || err != nil {
			w.Errorf("forgot %d at once, error %v", n, err)
		}
		now = now.Add(25 * time.Hour)
		collect()
		w.deleted("shop/web:v2 manifest_delete")
		w.cannotUndelete("shop/web", "v1", "", "no such tag or manifest was deleted")
		w.cannotUndelete("shop/web", "", sha256(m), "no such tag or manifest was deleted")
		w.cannotUndelete("shop/web", "v2", "", "has been collected")
		if n, err := c.ForgetDeleted(w.Context()); n != 3 || err != nil {
			w.Errorf("forgot %d, error %v", n, err)
		}
		w.deleted("")
	})
}
