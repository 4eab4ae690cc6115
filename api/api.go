// Package api is the Kubernetes HTTP front end: routing, negotiation,
// discovery and one file per verb.
//
// A request passes the filters (filter.go), is routed to an endpoint
// (route.go, endpoint.go) and ends in a verb of a resource (create.go,
// get.go, …). A verb combines the kind's strategy, the rules of the lifecycle
// and the store. The handlers of the Kubernetes library decode, patch, apply
// and encode. Plain JSON reads and common writes bypass those handlers and are
// served from stored bytes (get.go, list.go, watch_json.go, write_json.go).
//
// Begin reading with ServeHTTP below. Only status.go maps errors to HTTP
// status codes.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/api/bodycost"
	"github.com/exeunt/exeunt/api/discovery"
	"github.com/exeunt/exeunt/api/health"
	"github.com/exeunt/exeunt/api/record"
	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/earlier"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Config holds the dependencies and settings of an API.
type Config struct {
	Store     *store.Store
	Kinds     *kind.Registry
	Access    *access.Control
	OpenAPI   http.Handler  // serves /openapi/
	Metrics   http.Handler  // serves /metrics
	Extra     http.Handler  // serves /exeunt/ and SettingsPath, which Kubernetes does not have; nil: 404
	Open      http.Handler  // serves OpenPath and authenticates its clients itself; nil if the path is not served
	Observer  Observer      // is called after every request
	Admission Admission     // webhooks and policies
	Audit     *auditlog.Log // records requests, if it is set
	Logger    *slog.Logger
	Version   string                // version of this program, for /version
	Checks    func() []health.Check // of /readyz, besides ping and shutdown; nil if there is none
	Now       func() time.Time      // nil means time.Now

	Limits // those of the start: SetLimits
	// MaxRequests limits the requests that are served at once, without watches. 0:
	// inflight.DefaultRequests.
	MaxRequests int
	// NoControllers says that nothing removes the content of namespaces, and that an object with a grace period of 0
	// is marked before it is removed, in two steps, as kube-apiserver does. A crash between them leaves the mark.
	NoControllers bool
	// Full reports whether writes that need more space are refused. Nil if they never are.
	Full func() bool
	// GuardWarning returns a warning for the client if the guard will hold the delete,
	// or "". If it is nil, there are no warnings.
	GuardWarning func(ctx context.Context, o object.Object, options *metav1.DeleteOptions) (string, error)
}

// Admission decides about writes by webhooks and policies.
type Admission interface {
	admission.Interface
	// Selects reports whether a webhook or a policy may apply.
	Selects(resource schema.GroupResource, subresource string, operation admission.Operation) bool
	// Judges names the webhooks and policies that may apply.
	Judges(resource schema.GroupResource, operation admission.Operation) []string
	// Judge asks the validating policies, which has no effect.
	Judge(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error
	// Pretend makes a namespace exist for webhooks and policies until the context ends.
	Pretend(ctx context.Context, namespace *corev1.Namespace)
	// SelectsIn reports whether a built-in plugin may apply in a namespace.
	SelectsIn(namespace string, resource schema.GroupResource, operation admission.Operation) bool
	// Complete completes a new object that is created without the chain. Its error is a
	// reason to forbid it.
	Complete(ctx context.Context, namespace string, obj runtime.Object) error
}

// OpenPath is the prefix below which unauthenticated clients are admitted. The
// handler behind it authenticates them by its own means (nodes of the mesh).
const OpenPath = "/exeunt/mesh/node/"

// API serves the Kubernetes API. It is safe for concurrent use.
type API struct {
	Config
	audit  record.Recorder
	probes health.Log

	limits    atomic.Pointer[Limits]
	whileFull *rate.Limiter // the bytes of updates while the disk is full

	bookmarkEvery time.Duration // constant after New

	closing context.Context // ends when all watches must end
	close   context.CancelFunc
	watches sync.WaitGroup

	mu        sync.Mutex
	endpoints map[*kind.Version]*endpoint // guarded by mu
	discovery discovery.Cache
	earlier   *earlier.Kinds

	resolver  genericrequest.RequestInfoResolver
	inFlight  *inflight.Limit
	selectors *inflight.Limit // what the selectors of watches cost: see selector.Cost
	bodies    atomic.Int64    // bytes of request bodies in memory
	scale     *kind.Wire      // codecs for Scale objects
	handler   http.Handler
}

// New builds an API. It does no I/O.
func New(c Config) *API {
	bodycost.LimitCopies()
	a := &API{
		Config: c, audit: record.Recorder{Log: c.Audit}, whileFull: rate.NewLimiter(32<<10, 1<<20),
		endpoints: map[*kind.Version]*endpoint{},
		resolver: &genericrequest.RequestInfoFactory{
			APIPrefixes:          sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api"),
		},
		bookmarkEvery: bookmarkEvery,
		inFlight:      inflight.New(c.MaxRequests),
		selectors:     inflight.New(c.MaxRequests),
		scale:         scaleWire(),
		earlier:       earlier.New(c.Store, c.Kinds),
	}
	if a.Now == nil {
		a.Now = time.Now
	}
	a.SetLimits(c.Limits)
	a.closing, a.close = context.WithCancel(context.Background())
	a.handler = a.filters(http.HandlerFunc(a.route))
	return a
}

// Limits are the settings of Config that may change while the API serves.
type Limits struct {
	// SlowRequest is the time after which a request, except a watch, is logged with its
	// steps. With 0 none is.
	SlowRequest time.Duration

	LogRequests bool // log every request

	// MaxCascade is the guard's limit for namespaces that set none of their own: the most
	// objects that a delete may remove without confirmation. 0 means no limit.
	MaxCascade int64
}

// SetLimits replaces the limits. Requests that began before may still use the old ones.
func (a *API) SetLimits(l Limits) { a.limits.Store(&l) }

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	growStack(req)
	a.handler.ServeHTTP(w, req)
}

// Close ends all watches and waits for them until ctx ends. It reports whether
// all watches have ended.
func (a *API) Close(ctx context.Context) bool {
	a.close()
	ended := make(chan struct{})
	go func() { // ends with the last watch, at the latest when its connection is closed
		a.watches.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// serveDiscovery lists the served kinds: all in one document for clients that
// ask for the aggregated form, one document per group for the others.
func (a *API) serveDiscovery(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "discovery is read with GET", http.StatusMethodNotAllowed)
		return
	}
	if err := checkAccept(req, false); err != nil {
		a.fail(w, req, err)
		return
	}
	kinds, err := a.kindsOf(req.Context())
	if err != nil {
		a.fail(w, req, err)
		return
	}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	root := len(parts) == 1
	w.Header().Set("Vary", "Accept")
	if root && discovery.WantsAggregated(req) {
		a.serveAggregated(w, req, kinds, parts[0] == "api")
		return
	}
	doc := discovery.Document(kinds, parts, req.Host, a.Store.History().Keeps)
	if doc == nil {
		a.failNoKind(w, req, parts[0] == "apis" && !hasBuiltIn(kinds, parts[1]))
		return
	}
	responsewriters.WriteObjectNegotiated(builtin.Codecs(), negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, req, http.StatusOK, doc, false)
}

func (a *API) serveAggregated(w http.ResponseWriter, req *http.Request, kinds *kind.Snapshot, core bool) {
	doc, err := a.discovery.Get(kinds, core, kinds == a.Kinds.Snapshot(), a.Store.History().Keeps)
	if err != nil {
		a.Logger.Error("discovery failed", "error", err)
		http.Error(w, "discovery failed; the server's log says why", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", discovery.AggregatedType)
	h.Set("ETag", doc.ETag)
	h.Set("Cache-Control", "public")
	if strings.Contains(req.Header.Get("If-None-Match"), doc.ETag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(doc.Body)
}
