package api

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/object"
)

// Get reads one object. It always reads the newest version, which satisfies every
// resourceVersion that the client can have seen, unless the path names one of the past.
func (r *resource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	o, err := r.get(ctx, name, options.ResourceVersion)
	mark(ctx, stepRead)
	if err != nil {
		return nil, err
	}
	return r.decode(o)
}

func (r *resource) get(ctx context.Context, name, version string) (object.Object, error) {
	key := r.key(ctx, name)
	minRevision, err := parseVersion(version)
	if err != nil {
		return object.Object{}, r.statusError(err, key)
	}
	if past := pastRevision(ctx); past != 0 {
		o, err := r.api.Store.GetAt(ctx, key, past)
		return o, r.statusError(err, key)
	}
	o, err := r.api.Store.Get(ctx, key)
	if err != nil {
		return object.Object{}, r.statusError(err, key)
	}
	if current := r.api.Store.Revision(); minRevision > o.Revision && minRevision > current {
		return object.Object{}, versionTooLarge(tooLargeMessage(minRevision, current))
	}
	return o, nil
}

// serveGet answers a plain JSON GET with the stored bytes.
func (r *resource) serveGet(w http.ResponseWriter, req *http.Request, name string) {
	o, err := r.get(req.Context(), name, req.URL.Query().Get("resourceVersion"))
	mark(req.Context(), stepRead)
	if err != nil {
		r.fail(w, req, err)
		return
	}
	r.writeObject(w, http.StatusOK, o)
}

// writeObject answers with a stored object as JSON.
func (r *resource) writeObject(w http.ResponseWriter, code int, o object.Object) {
	buf := getBuffer()
	defer putBuffer(buf)
	*buf = r.v.AppendWire((*buf)[:0], r.prefix, o)
	*buf = append(*buf, '\n')
	h := w.Header()
	h["Content-Type"] = jsonContentType
	h["Cache-Control"] = noCache
	w.WriteHeader(code)
	_, _ = w.Write(*buf)
}
