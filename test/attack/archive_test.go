package attack_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// TestArchiveOfOthers: a client that creates and deletes many times what the archive holds, in one namespace, takes
// nothing from the archive of another one. An Event and a metric say what left.
func TestArchiveOfOthers(t *testing.T) {
	t.Parallel() // it waits more than it works
	const deletions, workers = 200, 4
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel() // most of it waits for the next run of expiry
			a := newTarget(t, harness.Start(t, engine, "--archive-max-bytes=20000000"))
			for _, name := range []string{"quiet", "loud"} {
				a.create(t, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+name+`"}}`)
			}
			quiet := "/api/v1/namespaces/quiet/configmaps"
			for i := range 10 {
				a.create(t, quiet, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mine-%d"}}`, i))
			}
			if answer := a.http.Do(t, harness.Request{Method: "DELETE", Path: quiet}); answer.Code != http.StatusOK {
				t.Fatalf("delete the collection: %d %.300s", answer.Code, answer.Body)
			}
			loud := "/api/v1/namespaces/loud/configmaps"
			megabyte := strings.Repeat("x", 1_000_000)
			var running sync.WaitGroup
			for worker := range workers {
				running.Go(func() {
					for i := range deletions / workers {
						name := fmt.Sprintf("loud-%d-%d", worker, i)
						body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"x":"` + megabyte + `"}}`
						for _, r := range []harness.Request{{Method: "POST", Path: loud, Body: body}, {Method: "DELETE", Path: loud + "/" + name}} {
							if answer, err := a.http.Try(r); err != nil || answer.Code >= 300 {
								t.Errorf("%s %s: %d %v %.300s", r.Method, name, answer.Code, err, answer.Body)
							}
						}
					}
				})
			}
			running.Wait()
			harness.Within(t, 2*time.Minute, "an Event about the eviction", func() error {
				if events := a.http.Get(t, "/api/v1/namespaces/loud/events"); !strings.Contains(string(events.Body), "ArchiveEvicted") {
					return fmt.Errorf("the Events are %.500s", events.Body)
				}
				return nil
			})
			if metrics := string(a.http.Get(t, "/metrics").Body); !strings.Contains(metrics, "\nexeunt_archive_evicted_cascades_total 1") {
				t.Errorf("no cascade was counted: %.100s", metrics[max(0, strings.Index(metrics, "exeunt_archive_evicted")):])
			}
			archived := a.http.Get(t, "/apis/lifecycle.exeunt.dev/v1/namespaces/quiet/archivedobjects")
			if n := strings.Count(string(archived.Body), `"name":"mine-`); n < 10 {
				t.Errorf("%d archived objects of the other namespace are left: %.500s", n, archived.Body)
			}
			if out := a.Exeunt(t, "restore", "--cascade", strings.Trim(archived.Field("items.0.spec.cascade"), `"`)); !strings.Contains(out.Stdout, "10 created, 0 skipped, 0 failed") {
				t.Errorf("restore: %+v", out)
			}
		})
	}
}
