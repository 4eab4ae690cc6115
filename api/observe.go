package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/api/health"
	"github.com/exeunt/exeunt/object"
)

// Observer is called after every request.
type Observer func(Observation)

// Observation is a request and its result, in the words of Kubernetes' metrics. What a
// client can choose freely is left out: an unknown kind has no group, version and
// resource, an unknown subresource is empty, and an unknown method has the verb "other".
type Observation struct {
	Verb                                  string // GET, LIST, WATCH, POST, PUT, PATCH, APPLY, DELETE, CONNECT or other
	DryRun                                string // "", "All" or "invalid"
	Group, Version, Resource, Subresource string // empty outside the API
	Scope                                 string // "resource", "namespace", "cluster" or ""
	Code                                  int
	Took                                  time.Duration // a watch ends with its client
}

const otherVerb = "other"

// observation returns what is known of a request before it is routed.
func (a *API) observation(req *http.Request, info *genericrequest.RequestInfo) Observation {
	o := Observation{Scope: metrics.CleanScope(info), DryRun: dryRunOf(req)}
	o.Verb = metrics.CleanVerb(metrics.CanonicalVerb(req.Method, o.Scope), req, info)
	if !slices.Contains(verbs, o.Verb) {
		o.Verb = otherVerb
	}
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	if _, ok := a.Kinds.Snapshot().Lookup(gvr); ok {
		o.Group, o.Version, o.Resource = gvr.Group, gvr.Version, gvr.Resource
	}
	return o
}

var verbs = []string{
	metrics.MethodGet, metrics.MethodList, metrics.MethodWatch, metrics.MethodPost, metrics.MethodPut,
	metrics.MethodPatch, metrics.MethodApply, metrics.MethodDelete, metrics.MethodConnect,
}

// dryRunOf returns the value of the parameter dryRun if it has the one that exists.
func dryRunOf(req *http.Request) string {
	if !strings.Contains(req.URL.RawQuery, "dryRun") {
		return ""
	}
	values, ok := req.URL.Query()["dryRun"]
	switch {
	case !ok:
		return ""
	case slices.Equal(values, []string{metav1.DryRunAll}):
		return metav1.DryRunAll
	}
	return "invalid"
}

// recovering runs f and turns a panic into a Bad Request error. f works on the
// client's input: it computes a change, or prepares or validates an object. The
// libraries panic on some senseless inputs (a JSON patch that tests the whole
// document against null). Nothing is written at that point, so the client gets
// an error and the log gets the panic with its stack.
func (r *resource) recovering(f func() error) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler {
			panic(p)
		}
		r.api.Logger.Error("input made a library panic", "resource", r.v.Resource().String(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		err = object.BadRequestf("the request cannot be carried out: what it asks for makes no sense for a %s", r.v.GVK.Kind)
	}()
	return f()
}

const (
	// maxLoggedQuery and maxLoggedAgent limit, in bytes, what the log says about a request.
	maxLoggedQuery = 256
	maxLoggedAgent = 64
)

// logRequest logs a request that took longer than Config.SlowRequest, with its steps,
// and every request if Config.LogRequests says so. A watch lasts as long as its client
// wants, and paths outside the API may wait (profiles, nodes of the mesh): they are never slow.
func (a *API) logRequest(seen *observedWriter, req *http.Request, took time.Duration) {
	limits := a.limits.Load()
	slow := limits.SlowRequest > 0 && took >= limits.SlowRequest && seen.request.Resource != "" && seen.request.Verb != metrics.MethodWatch
	if !slow && !limits.LogRequests {
		return
	}
	attributes := []any{"method", clip(req.Method, maxLoggedAgent), "path", clip(req.URL.Path, maxLoggedQuery)}
	if seen.request.Resource != "" && req.URL.RawQuery != "" { // elsewhere it may have a secret
		attributes = append(attributes, "query", clip(req.URL.RawQuery, maxLoggedQuery))
	}
	attributes = append(attributes, "status", seen.code, "took", took.Round(time.Millisecond/100),
		"user", seen.user, "agent", clip(req.UserAgent(), maxLoggedAgent), "from", req.RemoteAddr, "audit", seen.Header().Get("Audit-Id"))
	if slow {
		a.Logger.Warn("slow request", append(attributes, "steps", seen.steps.String())...)
		return
	}
	a.Logger.Info("request", attributes...)
}

// clip shortens a text of a client.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:limit] + "…"
}

// The steps of a request, in order. Not every request has all of them.
const (
	stepAuthorized = "authorized" // the client is known and may do this
	stepReceived   = "received"   // the body is in memory
	stepAdmitted   = "admitted"   // within the limit of requests in flight
	stepDecoded    = "decoded"    // options and object are read
	stepStored     = "stored"     // the write is committed
	stepRead       = "read"       // the database has answered
)

// steps are the times at which a request had reached its steps. It costs no memory of
// its own and 0.1 µs a step, so every request has it: only the log of a slow request
// reads it. The library's handlers write in a goroutine that may outlive the request.
type steps struct {
	mu    sync.Mutex
	start time.Time // constant
	count int       // guarded by mu
	list  [6]step   // guarded by mu
}

type step struct {
	name string
	at   time.Duration // since start
}

// mark says that the request has reached a step. What does not fit is dropped.
func (s *steps) mark(name string) {
	at := time.Since(s.start)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count < len(s.list) {
		s.list[s.count] = step{name, at}
		s.count++
	}
}

// String lists the steps with the milliseconds since the request came.
func (s *steps) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for i, step := range s.list[:s.count] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(step.name)
		b.WriteString(" after ")
		b.WriteString(strconv.FormatInt(step.at.Milliseconds(), 10))
		b.WriteString("ms")
	}
	return b.String()
}

// seenKey is the context key of the *observedWriter of a request.
type seenKey struct{}

// seenIn returns what is observed of a request, or nil.
func seenIn(ctx context.Context) *observedWriter {
	seen, _ := ctx.Value(seenKey{}).(*observedWriter)
	return seen
}

// mark marks a step of a request.
func mark(ctx context.Context, name string) {
	if seen := seenIn(ctx); seen != nil {
		seen.steps.mark(name)
	}
}

// The server is alive while it answers. It is ready while the checks of its parts pass and
// it is not shutting down.
var probes = []string{"/healthz", "/livez", "/readyz"}

const shutdownCheck = "shutdown"

func isProbe(path string) bool {
	return slices.ContainsFunc(probes, func(probe string) bool { return path == probe || strings.HasPrefix(path, probe+"/") })
}

// checksOf returns the checks of a probe, by its name without the slash.
func (a *API) checksOf(probe string) []health.Check {
	all := []health.Check{{Name: "ping", Run: func(context.Context) error { return nil }}}
	if probe == "livez" {
		return all
	}
	if a.Checks != nil {
		all = append(all, a.Checks()...)
	}
	return append(all, health.Check{Name: shutdownCheck, Run: func(context.Context) error {
		if a.closing.Err() != nil {
			return errors.New("the server is shutting down")
		}
		return nil
	}})
}

// serveProbe answers for all checks of a probe, or for the one that the path
// names. The reason of a failure goes to the log only, since the path is public.
func (a *API) serveProbe(w http.ResponseWriter, req *http.Request, path string) {
	probe, check, one := strings.Cut(path[1:], "/")
	checks := a.checksOf(probe)
	if one {
		checks = slices.DeleteFunc(checks, func(c health.Check) bool { return c.Name != check })
		if len(checks) == 0 {
			http.NotFound(w, req)
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), health.Timeout)
	defer cancel()
	var report strings.Builder
	healthy := true
	for _, c := range checks {
		err := c.Run(ctx)
		a.probes.Note(a.Logger, c.Name, err, c.Name == shutdownCheck)
		if err != nil {
			healthy = false
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", c.Name)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.Name)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, verbose := req.URL.Query()["verbose"]
	switch {
	case !healthy:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "%s%s check failed\n", report.String(), probe)
	case verbose:
		fmt.Fprintf(w, "%s%s check passed\n", report.String(), probe)
	default:
		fmt.Fprint(w, "ok")
	}
}
