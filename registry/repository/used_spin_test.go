package repository

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

var usedDigests = flag.Int("used", 60, "how many digests TestUsedSpin deploys on each engine")

// TestUsedSpin: clients push images, deploy them by digest and take deployments away, while a policy takes every tag at
// once and the collector waits for nothing. An image that is there when its Deployment has been created stays, with its
// layer; one that was taken between the push and the create stays from the next push on.
func TestUsedSpin(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		t.Parallel()
		w := newWorld(t, db, settings{})
		w.now = time.Now().Add(24 * time.Hour)
		w.push("shop/web", "first", "first")
		w.policy("all", `{"rules":[{"tags":["*"]}]}`, true)
		var clients, spinning sync.WaitGroup
		var late atomic.Int64
		ended := make(chan struct{})
		const parallel = 4
		for range 2 {
			spinning.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
						w.spin()
					}
				}
			})
		}
		for c := range parallel {
			clients.Go(func() {
				var used []string
				for i := range *usedDigests / parallel {
					content := fmt.Sprint(c, "-", i)
					late.Add(w.use(content))
					used = append(used, content)
					if n := rand.IntN(len(used)); rand.IntN(4) == 0 {
						w.undeploy("shop", "d"+used[n])
						used = append(used[:n], used[n+1:]...)
					}
					if len(used) > 0 {
						w.pullsDigest(used[rand.IntN(len(used))])
					}
				}
				for _, content := range used {
					w.pullsDigest(content)
				}
			})
		}
		clients.Wait()
		close(ended)
		spinning.Wait()
		t.Logf("%d digests, of which %d were taken before they were used; %d manifests are left", *usedDigests, late.Load(), w.Count(`SELECT count(*) FROM manifests`))
		if taken := w.statusOf("all", "taken"); taken == "0" || taken == "<nil>" {
			t.Error("the policy has taken nothing: the test is void")
		}
	})
}

// spin applies the policies and collects once. Both give way to clients, and fail then.
func (w *world) spin() {
	_ = w.retention.RunOne(w.Context())
	for _, queue := range []string{"gc_manifest_review_queue", "gc_blob_review_queue"} {
		_ = w.Try(func(b *sqldb.Batch) { b.Exec(`UPDATE ` + queue + ` SET review_after = 0 WHERE claim_token IS NULL`) })
	}
	_, _ = w.garbage.RunOne(w.Context())
}

// use pushes an image and deploys it, and pushes it again while it is not whole: how often that was necessary.
func (w *world) use(content string) (again int64) {
	_, d, layer := image(content)
	for ; again < 1000; again++ {
		pushed := w.tryPush("shop/web", "t"+content, content).Code == 201
		if again == 0 {
			w.deploy("shop", "d"+content, "h.example/shop/web@"+d)
		}
		if pushed && w.do("GET", "/v2/shop/web/manifests/"+d, "", "").Code == 200 && w.do("GET", "/v2/shop/web/blobs/"+layer, "", "").Code == 200 {
			return again
		}
	}
	w.Errorf("%s cannot be pushed", content)
	return again
}

func (w *world) pullsDigest(content string) {
	_, d, _ := image(content)
	w.pulls("shop/web", d, content)
}
