package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// PastPath is the prefix below which GET and LIST answer as they would have at a time or a version: /at/TIME/ or
// /at/VERSION/. Everything behind it is a path of the API.
const PastPath = "/at/"

type (
	pastKey         struct{} // the text behind PastPath
	pastRevisionKey struct{} // the revision that it means
)

// parsePast takes the prefix off the path. Filters and handlers behind it see the path of the API, so authentication and
// rights are those of the same request today, now.
func (a *API) parsePast(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		rest, past := strings.CutPrefix(req.URL.Path, PastPath)
		if !past {
			next.ServeHTTP(w, req)
			return
		}
		when, path, found := strings.Cut(rest, "/")
		if !found || strings.Contains(req.URL.EscapedPath(), "%2F") || strings.Contains(req.URL.EscapedPath(), "%2f") {
			a.fail(w, req, apierrors.NewBadRequest("the path must be /at/TIME/, /at/VERSION/ or /at/versions/ and a path of the API, such as /at/2026-11-17T10:00:00Z/api/v1/pods"))
			return
		}
		if req.Method != http.MethodGet {
			a.fail(w, req, pastRefused("the past can be read and not changed: send the request without /at/"+when))
			return
		}
		then := req.WithContext(context.WithValue(req.Context(), pastKey{}, when))
		then.URL = new(*req.URL)
		then.URL.Path, then.URL.RawPath = "/"+path, ""
		next.ServeHTTP(w, then)
	})
}

func pastRefused(why string) error {
	err := methodNotAllowed()
	err.ErrStatus.Message = why
	return err
}

// past returns the text behind PastPath.
func past(ctx context.Context) (when string, ok bool) {
	when, ok = ctx.Value(pastKey{}).(string)
	return when, ok
}

// pastRevision returns the revision that a request reads. 0 means the newest.
func pastRevision(ctx context.Context) int64 {
	revision, _ := ctx.Value(pastRevisionKey{}).(int64)
	return revision
}

// discoversPast reports whether a path that is no resource is answered below PastPath: what clients read first.
func discoversPast(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first == "api" || first == "apis" || first == "openapi" || first == "version"
}

// inPast finds the revision of a request below PastPath, puts it into the context, and finds the version of the kind that
// was served then; nil if none was. It asks for the verb history on what is read, besides the verb of the request, for
// which the client was asked before. Without a client it refuses.
func (a *API) inPast(req *http.Request, info *genericrequest.RequestInfo, gvr schema.GroupVersionResource) (*http.Request, *kind.Version, error) {
	ctx := req.Context()
	when, _ := past(ctx)
	what := schema.GroupResource{Group: info.APIGroup, Resource: strings.Trim(info.Resource+"/"+info.Subresource, "/")}
	if err := a.client(ctx).MayResource("history", what, info.Namespace, info.Name); err != nil {
		return nil, nil, err
	}
	v, _ := a.Kinds.Snapshot().Lookup(gvr)
	switch {
	case info.Verb == "watch":
		return nil, nil, pastRefused("the past does not change, so it cannot be watched: get or list it")
	case info.Verb != "get" && info.Verb != "list", info.Subresource != "" && info.Subresource != "status", v != nil && (v.Kind.Source != nil || v.Kind.Ephemeral):
		return nil, nil, pastRefused(fmt.Sprintf("%s %s has no past: objects can be read there, with get and list", info.Verb, what.Resource))
	}
	query := req.URL.Query()
	if version := query.Get("resourceVersion"); version != "" && version != "0" {
		return nil, nil, apierrors.NewBadRequest("below /at/ the path says the version: leave out resourceVersion")
	}
	if when == allVersions {
		if info.Name == "" || info.Subresource != "" {
			return nil, nil, apierrors.NewBadRequest("behind /at/versions/ comes the path of one object")
		}
		return req, v, nil
	}
	revision, err := a.Store.RevisionOf(ctx, when, a.Now())
	if err == nil {
		err = a.checkNamespace(ctx, info, what, revision)
	}
	if err == nil {
		v, err = a.earlier.Version(ctx, gvr, revision)
	}
	return req.WithContext(context.WithValue(ctx, pastRevisionKey{}, revision)), v, a.pastError(err)
}

// kindsOf returns the kinds of now or, below PastPath, those of then.
func (a *API) kindsOf(ctx context.Context) (*kind.Snapshot, error) {
	when, inPast := past(ctx)
	if !inPast || when == allVersions {
		return a.Kinds.Snapshot(), nil
	}
	revision, err := a.Store.RevisionOf(ctx, when, a.Now())
	if err != nil {
		return a.Kinds.Snapshot(), nil // clients hide why discovery failed, and show why the request behind it does
	}
	kinds, err := a.earlier.Snapshot(ctx, revision)
	return kinds, a.pastError(err)
}

// pastError is the Status of an error in reading a definition of then.
func (a *API) pastError(err error) error {
	return (&resource{api: a, v: &kind.Version{Kind: &kind.Kind{}}}).statusError(err, object.Key{})
}

// atPast makes a list one of the past. A continue token must be of the same past.
func atPast(ctx context.Context, request *store.ListRequest, options *metainternal.ListOptions) error {
	revision := pastRevision(ctx)
	if revision == 0 {
		return nil
	}
	if options.Continue != "" && request.Revision != revision {
		return object.BadRequestf("the continue token is of a list at another version: begin the list again")
	}
	request.Revision, request.Past = revision, true
	return nil
}

// author is who makes a write, for the history. The filters have identified the client.
func author(ctx context.Context, req *http.Request, w http.ResponseWriter) store.Author {
	info, _ := genericrequest.RequestInfoFrom(ctx)
	verb := info.Verb
	if info.Subresource != "" {
		verb += " " + info.Subresource
	}
	return store.Author{User: clientName(ctx), Client: req.UserAgent(), Verb: verb, RequestID: w.Header().Get("Audit-Id")}
}
