// Package api is the Kubernetes HTTP front end: routing, negotiation,
// discovery and one file per verb.
//
// A request passes the filters (filter.go), is routed to an endpoint
// (route.go, endpoint.go) and ends in a verb of a resource (create.go,
// get.go, …), which puts together a kind's strategy, the lifecycle's rules and
// the store. Decoding, patching, server-side apply and encoding are the
// Kubernetes library's handlers; plain JSON reads and common writes go past
// them and are served from stored bytes (get.go, list.go, watch_json.go,
// write_json.go).
//
// Begin reading with ServeHTTP below. Only status.go knows which HTTP status a
// refusal becomes.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Config is what an API stands on.
type Config struct {
	Store    *store.Store
	Kinds    *kind.Registry
	Access   *access.Authenticator
	OpenAPI  http.Handler // serves /openapi/
	Metrics  http.Handler // serves /metrics
	Extra    http.Handler // serves /exeunt/: what no Kubernetes server has; nil: nothing
	Open     http.Handler // serves OpenPath and finds out by itself who calls; nil: nothing
	Observer Observer     // is told of every request
	Logger   *slog.Logger
	Version  string           // this program's, for /version
	Ready    func() error     // why the server is not ready, or nil
	Now      func() time.Time // nil: time.Now

	// MaxCascade is the guard's limit where a Namespace has none of its own: the
	// most objects that a delete may take without confirmation. 0: any number.
	MaxCascade int64
	// Foresee says what the guard will make of a delete, for the person who
	// asked for it; empty: nothing. Nil: nobody looks ahead.
	Foresee func(ctx context.Context, o object.Object, options *metav1.DeleteOptions) (string, error)
}

// Observer is told of every request when it is answered. Resource is empty for
// requests outside the API.
type Observer func(verb, resource string, code int, took time.Duration)

// OpenPath is where callers are let through that this server does not know: they
// prove themselves to what is there, by means of its own (nodes of the mesh).
const OpenPath = "/exeunt/mesh/node/"

// MaxBody is the size of the largest request body that is read.
const MaxBody = 3 << 20

// API serves the Kubernetes API. It is safe for concurrent use.
type API struct {
	store   *store.Store
	kinds   *kind.Registry
	access  *access.Authenticator
	openapi http.Handler
	metrics http.Handler
	extra   http.Handler
	open    http.Handler
	observe Observer
	log     *slog.Logger
	version string
	ready   func() error
	now     func() time.Time

	maxCascade int64
	foresee    func(context.Context, object.Object, *metav1.DeleteOptions) (string, error)

	bookmarkEvery time.Duration // set once

	closing context.Context // ends when watches must
	close   context.CancelFunc
	watches sync.WaitGroup

	mu        sync.Mutex
	endpoints map[*kind.Version]*endpoint // guarded by mu
	discovery discoveryCache

	resolver genericrequest.RequestInfoResolver
	inFlight chan struct{} // one token for each short request being served
	bodies   atomic.Int64  // bytes of the bodies in memory
	scale    *kind.Wire    // how Scale objects are read and written
	handler  http.Handler
}

// New puts an API together. It does no I/O.
func New(c Config) *API {
	limitCopies()
	a := &API{
		store: c.Store, kinds: c.Kinds, access: c.Access, openapi: c.OpenAPI, metrics: c.Metrics, extra: c.Extra, open: c.Open,
		observe: c.Observer, log: c.Logger, version: c.Version, ready: c.Ready, now: c.Now,
		maxCascade: c.MaxCascade, foresee: c.Foresee,
		endpoints: map[*kind.Version]*endpoint{},
		resolver: &genericrequest.RequestInfoFactory{
			APIPrefixes:          sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api"),
		},
		bookmarkEvery: bookmarkEvery,
		inFlight:      make(chan struct{}, maxInFlight),
		scale:         scaleWire(),
	}
	if a.now == nil {
		a.now = time.Now
	}
	a.closing, a.close = context.WithCancel(context.Background())
	a.handler = a.filters(http.HandlerFunc(a.route))
	return a
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, req *http.Request) { a.handler.ServeHTTP(w, req) }

// Close ends all watches and waits, until the context ends, for them to say
// goodbye. It reports whether they have.
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
