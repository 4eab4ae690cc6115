package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/exeunt/exeunt/registry"
)

// ControlPath is the URL path below which a Control is served.
const ControlPath = "/exeunt/registry"

// runFor bounds a run on demand, so that the answer comes before the client's
// timeout.
const runFor = 20 * time.Second

// Control shows the collection to operators and lets them control it:
//
//	GET  /exeunt/registry/gc                              queues, delays, switches
//	GET  /exeunt/registry/gc/dry-run                      the Plan: what would go
//	GET  /exeunt/registry/gc/dry-run?repository=PATH&tag=T  what would go because this tag is deleted, or these: tag=T&tag=U
//	POST /exeunt/registry/gc/run                          review now what is due
//	POST /exeunt/registry/gc/review-after?event=E&after=D set the delay of an event
//	GET  /exeunt/registry/holds?image=shop/web:v1         what keeps an image
//	GET  /exeunt/registry/deleted?repository=PATH         what can be undeleted, of one repository or of all
//	POST /exeunt/registry/undelete?repository=PATH&tag=T&digest=D  bring it back; T or D, or both; moveTag=true: also if T exists
//
// Answers are JSON, errors a Status. The server has authorized the client before
// it calls ServeHTTP.
type Control struct {
	registry  *registry.Registry
	collector *Collector
	log       *slog.Logger
	verbs     map[string]verb
}

// verb is one operation.
type verb struct {
	method string
	answer func(ctx context.Context, query url.Values) (any, error)
}

// NewControl makes a Control. It does no I/O.
func NewControl(r *registry.Registry, c *Collector) *Control {
	k := &Control{registry: r, collector: c, log: c.options.Logger}
	k.verbs = map[string]verb{
		"/gc":              {http.MethodGet, k.stats},
		"/gc/dry-run":      {http.MethodGet, k.dryRun},
		"/gc/run":          {http.MethodPost, k.run},
		"/gc/review-after": {http.MethodPost, k.reviewAfter},
		"/holds":           {http.MethodGet, k.holds},
		"/deleted":         {http.MethodGet, k.deleted},
		"/undelete":        {http.MethodPost, k.undelete},
	}
	return k
}

// ServeHTTP answers one request.
func (k *Control) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path, _ := strings.CutPrefix(strings.TrimSuffix(req.URL.Path, "/"), ControlPath)
	v, known := k.verbs[path]
	switch {
	case !known:
		refuse(w, http.StatusNotFound, "there is no "+req.URL.Path)
		return
	case req.Method != v.method:
		w.Header().Set("Allow", v.method)
		refuse(w, http.StatusMethodNotAllowed, "use "+v.method)
		return
	}
	answer, err := v.answer(req.Context(), req.URL.Query())
	var refused *registry.Error
	var bad badRequest
	switch {
	case errors.As(err, &refused):
		refuse(w, refused.Status(), refused.Message)
	case errors.As(err, &bad):
		refuse(w, http.StatusBadRequest, bad.Error())
	case err != nil:
		k.log.Error("registry control: request failed", "path", req.URL.Path, "error", err)
		refuse(w, http.StatusInternalServerError, "internal error; the server's log says more")
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // an error means that the client disconnected
	}
}

// refuse answers with a Status: every Kubernetes client shows its text.
func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{ // an error means that the client disconnected
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code,
	})
}

// badRequest is the error for an invalid request.
type badRequest struct{ error }

func (k *Control) stats(ctx context.Context, _ url.Values) (any, error) {
	return k.collector.Stats(ctx)
}

// delays returns the delays of all events, formatted as Go durations.
func (c *Collector) delays(ctx context.Context) (map[string]string, error) {
	delays, err := c.ReviewAfter(ctx)
	if err != nil {
		return nil, err
	}
	text := map[string]string{}
	for event, after := range delays {
		text[event] = after.String()
	}
	return text, nil
}

func (k *Control) dryRun(ctx context.Context, query url.Values) (any, error) {
	repository, tags := query.Get("repository"), query["tag"]
	switch {
	case repository == "" && len(tags) == 0:
		return k.collector.DryRun(ctx)
	case len(tags) == 0 || len(tags) > mostPlanned:
		return nil, badRequest{fmt.Errorf("%d tags: a plan of tags takes one to %d", len(tags), mostPlanned)}
	}
	return k.collector.DryRunTags(ctx, repository, tags...)
}

// RunAnswer is what a run removed.
type RunAnswer struct {
	Paused    bool `json:"paused"`
	Complete  bool `json:"complete"`  // nothing else is due
	Manifests int  `json:"manifests"` // without those of removed repositories
	Blobs     int  `json:"blobs"`
	Paths     int  `json:"paths"` // number of paths whose bytes were removed
	Uploads   int  `json:"uploads"`
}

// run reviews until nothing is due. The collector's own loops run at the same
// time and share the work.
func (k *Control) run(ctx context.Context, _ url.Values) (any, error) {
	var a RunAnswer
	var err error
	if a.Paused, err = k.collector.paused(ctx); err != nil || a.Paused {
		return a, err
	}
	for end := time.Now().Add(runFor); time.Now().Before(end) && ctx.Err() == nil; {
		turn, err := k.collector.RunOne(ctx)
		if err != nil {
			return nil, err
		}
		a.Manifests += turn.Manifests.Acted
		a.Blobs += turn.Blobs.Acted
		a.Paths += turn.Unlinks.Acted
		a.Uploads += turn.Uploads
		if a.Complete = turn.Idle(); a.Complete {
			break
		}
	}
	return a, nil
}

func (k *Control) reviewAfter(ctx context.Context, query url.Values) (any, error) {
	after, err := time.ParseDuration(query.Get("after"))
	if err != nil {
		return nil, badRequest{fmt.Errorf("after %q is not a duration: use, for example, 90m or 36h", query.Get("after"))}
	}
	if err := validReviewAfter(query.Get("event"), after); err != nil {
		return nil, badRequest{err}
	}
	if err := k.collector.SetReviewAfter(ctx, query.Get("event"), after); err != nil {
		return nil, err
	}
	return k.collector.delays(ctx)
}

func (k *Control) deleted(ctx context.Context, query url.Values) (any, error) {
	return k.registry.Deleted(ctx, query.Get("repository"))
}

func (k *Control) undelete(ctx context.Context, query url.Values) (any, error) {
	return k.registry.Undelete(ctx, query.Get("repository"), query.Get("tag"), query.Get("digest"), query.Get("moveTag") == "true")
}
