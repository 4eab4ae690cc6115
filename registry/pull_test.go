package registry_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestTagDetails: the list of tags says the size of each, when it was pushed, and when its image was last pulled, by the tag
// or the digest, to the hour. A HEAD is no pull, nor is a request of the console.
func TestTagDetails(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		start := time.Date(2026, 11, 19, 1, 0, 0, 0, time.UTC)
		var later atomic.Int64
		w := newWorld(t, db, registry.Config{Now: func() time.Time { return start.Add(time.Duration(later.Load())) }})
		m := w.image("shop/web", "v1", "layer", "")
		w.tag("shop/web", "v2", ociManifest, m)
		other := w.image("shop/web", "other", "another layer", "")
		w.tag("shop/web", "all", ociIndex, indexOf("", m, other))
		details := func(query string) string {
			a := w.want(200, "GET", "/v2/shop/web/tags/list?details=true"+query, nil, nil)
			var body struct {
				Tags    []string
				Details []struct {
					Name, Digest       string
					Size, Manifests    int64
					PushedAt, PulledAt time.Time
				}
			}
			if err := json.Unmarshal([]byte(a.body), &body); err != nil || len(body.Tags) != len(body.Details) {
				w.Fatalf("%v: %s", err, a.body)
			}
			var out []string
			for i, d := range body.Details {
				pulled := "never"
				if !d.PulledAt.IsZero() {
					pulled = d.PulledAt.Sub(start).String()
				}
				if d.Name != body.Tags[i] || !d.PushedAt.Equal(start) {
					w.Errorf("the tag %s: %+v", body.Tags[i], d)
				}
				out = append(out, fmt.Sprintf("%s %d/%d %s", d.Name, d.Size, d.Manifests, pulled))
			}
			if next := a.next(); next != "" {
				if !strings.Contains(next, "details=true") {
					w.Errorf("the next page is %s", next)
				}
				out = append(out, "more")
			}
			return strings.Join(out, ", ")
		}
		want := func(query, want string) {
			t.Helper()
			dbtest.Until(t, want, func() error {
				if got := details(query); got != want {
					return fmt.Errorf("%s", got)
				}
				return nil
			})
		}
		want("", "all 22/2 never, other 15/0 never, v1 7/0 never, v2 7/0 never")
		want("&n=1&last=all", "other 15/0 never, more")
		want("&n=0", "")
		w.want(200, "HEAD", "/v2/shop/web/manifests/v1", nil, nil)
		w.want(200, "GET", "/v2/shop/web/manifests/v2", headers{"X-Exeunt-Console": "1"}, nil)
		w.want(200, "GET", "/v2/shop/web/manifests/other", nil, nil)
		want("", "all 22/2 never, other 15/0 0s, v1 7/0 never, v2 7/0 never")
		later.Store(int64(59 * time.Minute))
		w.want(200, "GET", "/v2/shop/web/manifests/other", nil, nil) // within the hour
		w.want(200, "GET", "/v2/shop/web/manifests/"+sha256(m), nil, nil)
		want("", "all 22/2 never, other 15/0 0s, v1 7/0 59m0s, v2 7/0 59m0s")
		later.Store(int64(time.Hour))
		w.want(200, "GET", "/v2/shop/web/manifests/other", nil, nil)
		want("", "all 22/2 never, other 15/0 1h0m0s, v1 7/0 59m0s, v2 7/0 59m0s")
		w.check()
	})
}
