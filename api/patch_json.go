package api

import (
	"context"
	"errors"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/json"

	"github.com/exeunt/exeunt/object"
)

// patch serves the JSON merge patch of an object. It returns false, and has done
// nothing, if the library must serve the request. It may find that out only when
// it applies the patch.
func (j *fastWrites) patch(ctx context.Context, w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo, body []byte) bool {
	opts, ok := j.readOptions(req)
	if !ok || opts.lenient || !hasUniqueKeys(body) {
		return false
	}
	markStep(w, stepDecoded)
	uncommon := false
	merge := func(_ context.Context, _, live runtime.Object) (runtime.Object, error) {
		merged, err := j.merge(opts, info, live, body)
		uncommon = err != nil // of the last try, which decides: one before may have begun with an old state
		if err != nil {
			return nil, err
		}
		return j.owners.Updated(live, merged, opts.manager, j.r.api.now()), nil
	}
	written, _, err := j.r.update(ctx, j.r.key(ctx, info.Name), updating{UpdatedObjectInfo: rest.DefaultUpdatedObjectInfo(nil, merge)})
	markStep(w, stepStored)
	switch {
	case uncommon:
		return false
	case err != nil:
		j.r.fail(w, req, err)
	default:
		j.answer(w, req, http.StatusOK, written)
	}
	return true
}

// errUncommon marks a patch that the library must apply.
var errUncommon = errors.New("not a common patch")

// merge applies the patch to an existing object.
func (j *fastWrites) merge(opts writeOptions, info *genericrequest.RequestInfo, live runtime.Object, patch []byte) (runtime.Object, error) {
	m, err := meta.Accessor(live)
	if err != nil || m.GetUID() == "" {
		return nil, errUncommon
	}
	revision, err := object.ParseResourceVersion(m.GetResourceVersion())
	if err != nil {
		return nil, err
	}
	stored, err := j.r.v.Encode(live)
	if err != nil {
		return nil, err
	}
	merged, err := jsonpatch.MergePatch(object.AppendWire(nil, j.r.prefix, stored, revision), patch)
	if err != nil {
		return nil, err
	}
	s, ok := j.decode(opts, info, merged)
	if !ok || s.meta.GetName() != info.Name {
		return nil, errUncommon
	}
	return s.obj, nil
}

// hasUniqueKeys reports whether a patch is a JSON object without duplicate keys.
func hasUniqueKeys(patch []byte) bool {
	twice, err := json.UnmarshalStrict(patch, &map[string]any{})
	return err == nil && len(twice) == 0
}
