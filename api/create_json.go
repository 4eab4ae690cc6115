package api

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/exeunt/exeunt/object"
)

// create serves the POST of an object. It returns false, and has done nothing, if
// the library must serve the request.
func (j *fastWrites) create(ctx context.Context, w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo, body []byte) bool {
	opts, ok := j.readOptions(req)
	if !ok {
		return false
	}
	s, ok := j.decode(opts, info, body)
	if !ok || len(s.meta.GetManagedFields()) > 0 {
		return false
	}
	markStep(w, stepDecoded)
	j.r.api.audit.Object(ctx, j.r.v, s.obj)
	rest.WipeObjectMetaSystemFields(s.meta)
	var o object.Object
	err := j.r.recovering(func() error {
		j.owners.Created(s.obj, s.meta, opts.manager, j.r.api.now())
		return nil
	})
	if err == nil {
		err = j.r.complete(ctx, s.obj)
	}
	if err == nil {
		o, err = j.r.create(ctx, s.obj, nil, false)
	}
	markStep(w, stepStored)
	if err != nil {
		j.r.fail(w, req, err)
		return true
	}
	j.answer(w, req, http.StatusCreated, written{s.obj, o})
	return true
}

// complete does for a new object what the chain does in the library's handlers.
func (r *resource) complete(ctx context.Context, obj runtime.Object) error {
	err := r.api.admit.Complete(ctx, genericrequest.NamespaceValue(ctx), obj)
	if err == nil {
		return nil
	}
	m, accessErr := meta.Accessor(obj)
	if accessErr != nil {
		return accessErr
	}
	return admission.NewForbidden(createAttributes(ctx, r.v, obj, r.key(ctx, m.GetName()), false), err)
}
