package collect

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestControl(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "m", Config: "c", Layers: []string{"l"}, Tags: []string{"t"}})
		w.ask(http.MethodGet, "/gc", 200, `"paused":false,"off":false,"collectManifests":true,"collectBlobs":true,"collectSignatures":true,"repositories":{"depth":0`)
		w.ask(http.MethodGet, "/gc/", 200, `"tag_delete":"24h0m0s"`)
		w.ask(http.MethodPost, "/gc/review-after?event=tag_delete&after=90m", 200, `"tag_delete":"1h30m0s"`)
		w.ask(http.MethodGet, "/gc/dry-run", 200, `{"manifests":[],"tags":[],"blobs":[],"uploads":0,`)
		w.ask(http.MethodPost, "/gc/run", 200, `"complete":true,"manifests":0`)

		w.Exec(`DELETE FROM tags`)
		w.ask(http.MethodGet, "/gc/dry-run", 200, `"manifests":[{"repository":"r","digest":"`+w.DigestOf("m")+`"}]`)
		w.clock.Advance(48 * time.Hour)
		w.ask(http.MethodPost, "/gc/run", 200, `"complete":true,"manifests":1,"blobs":2`)

		w.ask(http.MethodPost, "/gc", 405, "use GET")
		w.ask(http.MethodGet, "/gc/run", 405, "use POST")
		w.ask(http.MethodPost, "/gc/explode", 404, "there is no")
		w.ask(http.MethodPost, "/gc/review-after?event=tag_delete&after=soon", 400, "is not a duration")
		w.ask(http.MethodPost, "/gc/review-after?event=tag_delete&after=-1s", 400, "from 0 to 100 years")
		w.ask(http.MethodPost, "/gc/review-after?event=nonsense&after=1s", 400, "unknown event")
	})
}

// TestControlSwitches: the answers name what is switched off or paused, and it
// does not run.
func TestControlSwitches(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{KeepManifests: true, KeepBlobs: true, KeepSignatures: true, Off: true})
		w.Push(image{Repo: "r", Name: "m", Config: "c"})
		w.clock.Advance(48 * time.Hour)
		w.ask(http.MethodGet, "/gc", 200, `"off":true,"collectManifests":false,"collectBlobs":false,"collectSignatures":false`)
		w.ask(http.MethodGet, "/gc/dry-run", 200, `"manifests":[]`)
		w.ask(http.MethodPost, "/gc/run", 200, `"complete":true,"manifests":0,"blobs":0`)
		w.with(Options{Paused: func(context.Context) (bool, error) { return true, nil }})
		w.ask(http.MethodPost, "/gc/run", 200, `"paused":true,"complete":false`)
	})
}

func (w *world) ask(method, target string, code int, want string) {
	w.Helper()
	answer := httptest.NewRecorder()
	NewControl(registry.New(registry.Config{DB: w.DB, Blobs: w.Store}), w.c).ServeHTTP(answer, httptest.NewRequest(method, ControlPath+target, nil))
	if answer.Code != code || !strings.Contains(answer.Body.String(), want) {
		w.Errorf("%s %s: %d %s; want %d and %s", method, target, answer.Code, answer.Body, code, want)
	}
	if !json.Valid(answer.Body.Bytes()) {
		w.Errorf("%s %s: not JSON: %s", method, target, answer.Body)
	}
}
