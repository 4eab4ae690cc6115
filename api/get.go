package api

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/object"
)

// Get reads one object. Every read is of the newest version, which satisfies
// whatever resourceVersion the caller can have seen.
func (r *resource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	o, err := r.get(ctx, name, options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	return r.decode(o)
}

func (r *resource) get(ctx context.Context, name, version string) (object.Object, error) {
	key := r.key(ctx, name)
	least, err := object.ParseResourceVersion(version)
	if err != nil {
		return object.Object{}, r.statusError(err, key)
	}
	o, err := r.api.store.Get(ctx, key)
	if err != nil {
		return object.Object{}, r.statusError(err, key)
	}
	if current := r.api.store.Revision(); least > o.Revision && least > current {
		return object.Object{}, versionFromTheFuture(tooLargeMessage(least, current))
	}
	return o, nil
}

// serveGet answers a plain JSON GET with the stored bytes.
func (r *resource) serveGet(w http.ResponseWriter, req *http.Request, name string) {
	o, err := r.get(req.Context(), name, req.URL.Query().Get("resourceVersion"))
	if err != nil {
		r.fail(w, req, err)
		return
	}
	r.writeObject(w, http.StatusOK, o)
}

// writeObject puts a stored object on the wire as JSON.
func (r *resource) writeObject(w http.ResponseWriter, code int, o object.Object) {
	buf := getBuffer()
	defer putBuffer(buf)
	*buf = object.AppendWire((*buf)[:0], r.prefix, o.Body, o.Revision)
	*buf = append(*buf, '\n')
	h := w.Header()
	h["Content-Type"] = jsonContentType
	h["Cache-Control"] = noCache
	w.WriteHeader(code)
	_, _ = w.Write(*buf)
}
