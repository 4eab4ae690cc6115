package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/api/record"
	"github.com/exeunt/exeunt/api/selector"
	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/store"
)

// filters wraps the router in the filters; the last one added runs first.
func (a *API) filters(next http.Handler) http.Handler {
	next = filters.WithWarningRecorder(next)
	next = a.authorize(next)
	next = a.impersonate(next)
	next = a.audit.Handler(next)
	next = a.authenticate(next)
	next = a.refuseWebPages(next)
	next = a.parse(next)
	next = a.parsePast(next)
	return a.observed(next)
}

// observed recovers from panics, reports the request to the observer and the log, and
// sets the Audit-Id header.
func (a *API) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seen := &observedWriter{Flushing: record.Flushing{ResponseWriter: w}, request: Observation{Verb: otherVerb}}
		seen.steps.start = time.Now()
		seen.Header()["Audit-Id"] = []string{auditID(req)}
		seen.Header()["Cache-Control"] = noCache // a handler may replace it
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				a.Logger.Error("request panicked", "path", req.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				if seen.code == 0 {
					a.fail(seen, req, apierrors.NewInternalError(fmt.Errorf("the server could not complete the request; its log says why")))
				}
			}
			took := time.Since(seen.steps.start)
			if a.Observer != nil {
				seen.request.Code, seen.request.Took = seen.code, took
				a.Observer(seen.request)
			}
			a.logRequest(seen, req, took)
		}()
		next.ServeHTTP(seen, req)
	})
}

// auditID returns the client's Audit-Id, or a new one if the client sent none, or one
// that is longer than 64 bytes or has other bytes than printable ASCII. The archive
// stores it, and PostgreSQL refuses text that is not UTF-8.
func auditID(req *http.Request) string {
	id := req.Header.Get("Audit-Id")
	if id == "" || len(id) > 64 || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return uuid.NewString()
	}
	return id
}

// observedWriter remembers the request and its status code for the observer, and more for
// the log.
type observedWriter struct {
	record.Flushing
	code    int
	request Observation
	user    string // before impersonation
	steps   steps
}

func (w *observedWriter) WriteHeader(code int) {
	w.code = cmp.Or(w.code, code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *observedWriter) Write(b []byte) (int, error) {
	w.code = cmp.Or(w.code, http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// parse puts the request's verb, resource and name into its context, and sets
// the time limit of the request.
func (a *API) parse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, err := a.resolver.NewRequestInfo(req)
		if err != nil {
			a.fail(w, req, apierrors.NewBadRequest(err.Error()))
			return
		}
		ctx := genericrequest.WithRequestInfo(req.Context(), info)
		if seen, ok := w.(*observedWriter); ok {
			seen.request = a.observation(req, info)
			ctx = context.WithValue(ctx, seenKey{}, seen)
		}
		if info.Verb == "watch" {
			var ended func()
			ctx, ended = withWatchEnd(ctx, w)
			defer ended()
		}
		limit, err := timeLimit(req, info)
		if err != nil {
			a.fail(w, req, err)
			return
		}
		if limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		next.ServeHTTP(w, req.WithContext(a.audit.Context(ctx, info, w.Header().Get("Audit-Id"), a.Now())))
	})
}

// timeLimit is how long a request may take: as long as the client says with ?timeout, and
// at most requestTimeout. 0 means no limit.
func timeLimit(req *http.Request, info *genericrequest.RequestInfo) (time.Duration, error) {
	if info.Verb == "watch" {
		return 0, nil
	}
	limit := requestTimeout
	if info.Verb == "deletecollection" {
		limit = 0
	}
	if !strings.Contains(req.URL.RawQuery, "timeout=") {
		return limit, nil
	}
	text := req.URL.Query().Get("timeout")
	if text == "" {
		return limit, nil
	}
	asked, err := time.ParseDuration(text)
	if err != nil {
		return 0, apierrors.NewBadRequest("invalid timeout specified in the request URL - " + err.Error())
	}
	if asked > 0 && (limit == 0 || asked < limit) {
		return asked, nil
	}
	return limit, nil
}

// refuseWebPages refuses requests that a web page of another origin made a browser
// send: the browser may have a client certificate, or access to an internal
// network.
func (a *API) refuseWebPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if why := access.FromPage(req); why != "" {
			a.fail(w, req, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(why)))
			return
		}
		next.ServeHTTP(w, req)
	})
}

// authenticate identifies the client. Nodes of the mesh authenticate behind OpenPath.
func (a *API) authenticate(next http.Handler) http.Handler {
	refuse := a.audit.Refusal(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="exeunt"`)
		a.fail(w, req, apierrors.NewUnauthorized("Unauthorized"))
	}))
	open := a.audit.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a.serveExtra(w, req, a.Open)
		if seen := seenIn(req.Context()); seen != nil && seen.code < http.StatusBadRequest {
			inflight.Known(req.Context()) // a.Open has authenticated the client
		}
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if a.Open != nil && strings.HasPrefix(req.URL.Path, OpenPath) {
			if impersonates, _ := access.Impersonates(req.Header); impersonates {
				a.fail(w, req, errImpersonation("a node of the mesh acts as itself"))
				return
			}
			open.ServeHTTP(w, req) // this client reaches no other handler
			return
		}
		if wait := a.Access.Slow(req); wait > 0 {
			a.audit.Refusal(a.refuseGuesses(wait)).ServeHTTP(w, req)
			return
		}
		client, known := a.Access.Authenticate(req)
		if !known {
			refuse.ServeHTTP(w, req)
			return
		}
		if seen := seenIn(req.Context()); seen != nil {
			seen.user = client.GetName()
		}
		if client.GetName() != user.Anonymous {
			inflight.Known(req.Context())
		}
		next.ServeHTTP(w, req.WithContext(genericrequest.WithUser(req.Context(), client)))
	})
}

// refuseGuesses answers a client whose address presented too many wrong credentials.
func (a *API) refuseGuesses(wait time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seconds := int(wait/time.Second) + 1
		a.fail(w, req, apierrors.NewTooManyRequests("too many wrong credentials from your address; please try again", seconds))
	})
}

// impersonate lets a client act as another user, with the verb impersonate on that
// user and on every group, uid and extra of it, or with constrained impersonation's verbs
// for what it does then. The library decides.
func (a *API) impersonate(next http.Handler) http.Handler {
	acting := impersonation.WithConstrainedImpersonation(next, a.Access.Authorizer(), builtin.Codecs())
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		impersonates, unknown := access.Impersonates(req.Header)
		switch {
		case !impersonates:
			next.ServeHTTP(w, req)
		case unknown != "":
			a.fail(w, req, errImpersonation(fmt.Sprintf("the header %s is unknown or empty", unknown)))
		default:
			acting.ServeHTTP(w, req)
		}
	})
}

func errImpersonation(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("impersonation: "+why))
}

// authorize refuses what the client may not do. It decides by the same RequestInfo
// that route reads. A path with tricks in it (empty segments, dots, slashes in names)
// reaches no decision and no handler.
func (a *API) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if problem := pathProblem(req); problem != "" {
			a.fail(w, req, noSuchPath(problem))
			return
		}
		denied, reason, err := a.Access.Authorize(req.Context())
		a.audit.Decision(req.Context(), denied == nil, reason, err)
		switch {
		case err != nil:
			a.Logger.Error("request could not be authorized", "path", req.URL.Path, "error", err)
			a.fail(w, req, apierrors.NewInternalError(errors.New("the request could not be authorized")))
		case denied != nil:
			a.fail(w, req, responsewriters.ForbiddenStatusError(denied, reason))
		default:
			mark(req.Context(), stepAuthorized)
			if info, ok := genericrequest.RequestInfoFrom(req.Context()); ok && sendsBody(info) {
				req = req.WithContext(store.WithAuthor(req.Context(), author(req.Context(), req, w)))
			}
			next.ServeHTTP(w, req)
		}
	})
}

// limitInFlight serves a request within the limit of requests in flight, or refuses
// it with 429. Clients share the limit. Watches count by the cost of their selectors, and in a
// limit of their own, because they last. The body is already received. An
// answer that waits for its client does not count.
func (a *API) limitInFlight(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
	info, _ := genericrequest.RequestInfoFrom(req.Context())
	if info.Verb == "watch" {
		query := req.URL.Query()
		giveBack, ok := a.selectors.Take(clientName(req.Context()), selector.Cost(query.Get("labelSelector"), query.Get("fieldSelector")))
		if !ok {
			a.fail(w, req, errSelectors())
			return
		}
		defer giveBack()
		serve(w, req)
		return
	}
	r, ok := a.inFlight.BeginFor(clientName(req.Context()), w, req)
	if !ok {
		a.fail(w, req, errBusy())
		return
	}
	defer r.End()
	if info.Verb == "list" {
		req = req.WithContext(context.WithValue(req.Context(), inFlightKey{}, r))
	}
	serve(r, req)
}

// serveExtra serves a request outside the Kubernetes API within the same limit. A
// long poll (GET with the parameter wait) does not count, as watches do not. The
// handler reads the body, and the request has no slot meanwhile.
func (a *API) serveExtra(w http.ResponseWriter, req *http.Request, handler http.Handler) {
	if req.Method == http.MethodGet && req.URL.Query().Has("wait") {
		handler.ServeHTTP(w, req)
		return
	}
	a.Limited(handler).ServeHTTP(w, req)
}

// Limited serves requests within the limit of requests in flight. Clients that are not
// known share as one does.
func (a *API) Limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !a.inFlight.Serve(cmp.Or(clientName(req.Context()), user.Anonymous), w, req, next) {
			a.fail(w, req, errBusy())
		}
	})
}

// inFlightKey is the context key of the *inflight.Request of a list.
type inFlightKey struct{}

// growStack makes the stack of a request's goroutine as large as the request needs. It
// would grow two or three times anyway, in the middle of the authorizer, of the decoder
// or of the comparison of fields, and a deep stack is slow to copy: a tenth of the CPU
// time of a GET and of an update.
func growStack(req *http.Request) {
	switch req.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		growTo32(len(req.Method))
	default:
		growTo16(len(req.Method))
	}
}

// growTo32 has a frame that only a stack of 32 KiB has room for.
//
//go:noinline
func growTo32(n int) byte {
	var frame [18 << 10]byte
	frame[n] = 1
	return frame[n+1]
}

// growTo16 has a frame that only a stack of 16 KiB has room for.
//
//go:noinline
func growTo16(n int) byte {
	var frame [9 << 10]byte
	frame[n] = 1
	return frame[n+1]
}
