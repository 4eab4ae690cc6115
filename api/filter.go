package api

import (
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
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/access"
)

// maxInFlight is how many short requests are served at once; further ones are
// asked to come back (429). Watches do not count: they cost little.
const maxInFlight = 600

// filters wraps the router in what every request passes, outermost first.
func (a *API) filters(next http.Handler) http.Handler {
	next = filters.WithWarningRecorder(next)
	next = a.authenticate(next)
	next = a.notFromPages(next)
	next = a.parse(next)
	return a.observed(next)
}

// observed recovers from panics, counts the request and names it in a header.
func (a *API) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		start := time.Now()
		seen := &observedWriter{ResponseWriter: w}
		seen.Header()["Audit-Id"] = []string{auditID(req)}
		seen.Header()["Cache-Control"] = noCache // unless the answer knows better
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				a.log.Error("request panicked", "path", req.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				if seen.code == 0 {
					a.fail(seen, req, apierrors.NewInternalError(fmt.Errorf("the server could not complete the request; its log says why")))
				}
			}
			if a.observe != nil {
				a.observe(seen.verb, seen.resource, seen.code, time.Since(start))
			}
		}()
		next.ServeHTTP(seen, req)
	})
}

// auditID is the caller's, when it sent a sane one.
func auditID(req *http.Request) string {
	if id := req.Header.Get("Audit-Id"); id != "" && len(id) <= 64 {
		return id
	}
	return uuid.NewString()
}

// observedWriter remembers what was answered, for the observer.
type observedWriter struct {
	http.ResponseWriter
	code           int
	verb, resource string
}

func (w *observedWriter) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *observedWriter) Write(b []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController looks for.
func (w *observedWriter) FlushError() error {
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is what the library's watch handler looks for.
func (w *observedWriter) Flush() { _ = w.FlushError() }

func (w *observedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// parse puts the request's verb, resource and name into its context, and ends
// requests that take too long.
func (a *API) parse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, err := a.resolver.NewRequestInfo(req)
		if err != nil {
			a.fail(w, req, apierrors.NewBadRequest(err.Error()))
			return
		}
		if seen, ok := w.(*observedWriter); ok {
			seen.verb = knownVerb(info.Verb)
			// A name that callers make up is not worth a time series.
			gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
			if _, ok := a.kinds.Snapshot().Lookup(gvr); ok {
				seen.resource = info.Resource
			}
		}
		ctx := genericrequest.WithRequestInfo(req.Context(), info)
		if info.Verb == "watch" {
			var ended func()
			ctx, ended = withWatchEnd(ctx, w)
			defer ended()
		}
		if info.Verb != "watch" && info.Verb != "deletecollection" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, requestTimeout)
			defer cancel()
		}
		if info.Verb == "patch" {
			ctx = audit.WithAuditContext(ctx) // the library's patch handler cannot do without
		}
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

// knownVerb is a verb as the observer is told of it: methods that callers make
// up are all one.
func knownVerb(verb string) string {
	switch verb {
	case "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post", "put", "head", "options":
		return verb
	}
	return "other"
}

// notFromPages refuses what a web page of another origin made a browser send: a
// browser may have a client certificate, or stand where others cannot.
func (a *API) notFromPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if why := access.FromPage(req); why != "" {
			a.fail(w, req, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(why)))
			return
		}
		next.ServeHTTP(w, req)
	})
}

// authenticate finds out who calls. Unknown callers get the public paths only.
// No caller acts as another user.
func (a *API) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		caller, known := a.access.Caller(req)
		open := a.open != nil && strings.HasPrefix(req.URL.Path, OpenPath)
		// Credentials that are no good are refused everywhere.
		public := isPublic(req.URL.Path) && isRead(req.Method) && req.Header.Get("Authorization") == ""
		if !known && !open && !public {
			w.Header().Set("WWW-Authenticate", `Bearer realm="exeunt"`)
			a.fail(w, req, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		if !known {
			caller = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
		}
		if needed, ok := access.Impersonation(req.Header, caller); ok {
			a.fail(w, req, responsewriters.ForbiddenStatusError(needed, noImpersonation))
			return
		}
		if open {
			a.open.ServeHTTP(w, req) // from here nothing else can be reached
			return
		}
		if !known {
			next.ServeHTTP(w, req)
			return
		}
		req.Header.Del("Authorization")
		next.ServeHTTP(w, req.WithContext(genericrequest.WithUser(req.Context(), caller)))
	})
}

// noImpersonation is why a request to act as another user is refused: without
// roles, acting as the caller instead would do what the caller ruled out.
const noImpersonation = "this server does not support impersonation"

func isRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// limited serves a short request, or refuses it beyond maxInFlight instead of
// queueing it. The request's body has come: a client that sends slowly holds
// none of the places.
func (a *API) limited(w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo, serve func()) {
	if info.Verb == "watch" {
		serve()
		return
	}
	select {
	case a.inFlight <- struct{}{}:
		defer func() { <-a.inFlight }()
		serve()
	default:
		a.fail(w, req, errBusy())
	}
}
