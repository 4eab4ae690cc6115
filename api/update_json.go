package api

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// update serves the PUT of an object. It returns false, and has done nothing, if
// the library must serve the request.
func (j *fastWrites) update(ctx context.Context, w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo, body []byte) bool {
	opts, ok := j.readOptions(req)
	if !ok {
		return false
	}
	s, ok := j.decode(opts, info, body)
	if !ok || s.meta.GetName() != info.Name {
		return false
	}
	markStep(w, stepDecoded)
	j.r.api.audit.Object(ctx, j.r.v, s.obj)
	owned := func(_ context.Context, obj, live runtime.Object) (runtime.Object, error) {
		return j.owners.Updated(live, obj, opts.manager, j.r.api.now()), nil
	}
	written, created, err := j.r.update(ctx, j.r.key(ctx, info.Name), updating{UpdatedObjectInfo: rest.DefaultUpdatedObjectInfo(s.obj, owned)})
	markStep(w, stepStored)
	if err != nil {
		j.r.fail(w, req, err)
		return true
	}
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	j.answer(w, req, code, written)
	return true
}
