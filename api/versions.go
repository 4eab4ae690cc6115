package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/api/versions"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store/history"
)

// allVersions is what stands for a time behind PastPath to ask for the versions of an object: GET /at/versions/ and its path.
const allVersions = "versions"

// serveVersions answers with the versions of a name, the newest first: those of all objects that had it, as far as the
// history and the log have them. The rights are those of inPast.
func (r *resource) serveVersions(w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo) {
	ctx := genericrequest.WithNamespace(req.Context(), info.Namespace)
	key := r.key(ctx, info.Name)
	page, err := versions.Read(ctx, r.api.Store, key, req.URL.Query())
	if err == nil {
		var seen int
		if seen, err = r.api.ownPast(ctx, info, page.Found); err == nil {
			list, failed := page.List(key, seen, r.wire)
			if err = failed; err == nil {
				writeJSON(w, http.StatusOK, list)
				return
			}
		}
	}
	r.fail(w, req, r.statusError(err, key))
}

// wire is a stored object in JSON. One that cannot be converted now is as it was stored.
func (r *resource) wire(o object.Object) ([]byte, error) {
	if !r.v.Raw {
		if obj, err := r.v.Decode(o.Body, o.ResourceVersion()); err == nil {
			return json.Marshal(obj)
		}
		_, body, err := object.CutVersion(o.Body)
		if err != nil {
			return nil, err
		}
		o.Body = body
	}
	return r.v.AppendWire(nil, r.prefix, o), nil
}

// A namespace that was created again has the name of the earlier one, and rights go by names. Who has the verb history in
// one namespace may therefore read no further back than the namespace with its present uid existed. Who has it in all
// namespaces may.

// ownPast returns how many of the versions, from the newest, a client may see.
func (a *API) ownPast(ctx context.Context, info *genericrequest.RequestInfo, found []versions.Version) (int, error) {
	if a.seesAllPast(ctx, info) {
		return len(found), nil
	}
	for i, v := range found {
		own, err := history.SameNamespace(ctx, a.Store, info.Namespace, v.Revision)
		if err != nil || !own {
			return i, err
		}
	}
	return len(found), nil
}

// checkNamespace refuses a state from when the namespace of a request was another one.
func (a *API) checkNamespace(ctx context.Context, info *genericrequest.RequestInfo, what schema.GroupResource, revision int64) error {
	if a.seesAllPast(ctx, info) {
		return nil
	}
	own, err := history.SameNamespace(ctx, a.Store, info.Namespace, revision)
	if err == nil && !own {
		err = apierrors.NewForbidden(what, info.Name, fmt.Errorf("the namespace %q did not exist at version %d, or was another one of that name: its past needs the verb history in all namespaces", info.Namespace, revision))
	}
	return err
}

// seesAllPast reports whether a request has no namespace, or its client has the rights in all of them.
func (a *API) seesAllPast(ctx context.Context, info *genericrequest.RequestInfo) bool {
	client, what := a.client(ctx), schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	return info.Namespace == "" || client.MayIn("", "history", what, info.Name) == nil && client.MayIn("", info.Verb, what, info.Name) == nil
}
