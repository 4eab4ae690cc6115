package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// serveWatch answers a plain JSON WATCH with frames built from stored bytes. A frame
// is built once and shared by all watchers that see the event in the same way.
func (r *resource) serveWatch(w http.ResponseWriter, req *http.Request, options *metainternal.ListOptions) {
	plan, err := r.planWatch(options)
	if err != nil {
		r.fail(w, req, err)
		return
	}
	r.api.watches.Add(1)
	defer r.api.watches.Done()
	ctx, cancel := context.WithTimeout(req.Context(), watchTimeout(options))
	defer cancel()
	defer context.AfterFunc(r.api.closing, cancel)()
	defer setDeadlineAfter(ctx)()
	state, err := r.openState(ctx, options, plan)
	if err != nil {
		r.fail(w, req, err)
		return
	}

	h := w.Header()
	h["Content-Type"] = jsonContentType
	h["Cache-Control"] = noCache
	w.WriteHeader(http.StatusOK)
	out := &jsonWatch{r: r, w: w, flusher: http.NewResponseController(w)}
	_ = out.flusher.Flush() // the next write detects a client that has disconnected
	if err := r.runWatch(ctx, options, plan, state, out); err != nil {
		out.fail(err)
	}
}

// jsonWatch is a sink that writes frames to the response.
type jsonWatch struct {
	r       *resource
	w       http.ResponseWriter
	flusher *http.ResponseController
	buf     []byte
}

// frameKey identifies a shared frame. Frames of one event differ by version and by
// event type: an update is ADDED or DELETED for some selectors.
type frameKey struct {
	version *kind.Version
	event   watch.EventType
}

func (j *jsonWatch) added(o object.Object) error {
	j.buf = j.frame(j.buf, watch.Added, o)
	return j.spill()
}

func (j *jsonWatch) changed(t watch.EventType, e *store.Event, o object.Object) error {
	frame := e.Cached(frameKey{j.r.v, t}, func() []byte { return j.frame(nil, t, o) })
	j.buf = append(j.buf, frame...)
	return j.spill()
}

func (j *jsonWatch) frame(dst []byte, t watch.EventType, o object.Object) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, t...)
	dst = append(dst, `","object":`...)
	dst = j.r.v.AppendWire(dst, j.r.prefix, o)
	return append(dst, '}', '\n')
}

func (j *jsonWatch) bookmark(revision int64, initial bool) error {
	j.buf = append(j.buf, `{"type":"BOOKMARK","object":`...)
	j.buf = append(j.buf, j.r.prefix...)
	j.buf = strconv.AppendInt(j.buf, revision, 10)
	j.buf = append(j.buf, '"')
	if initial {
		j.buf = append(j.buf, `,"annotations":{"`+metav1.InitialEventsAnnotationKey+`":"true"}`...)
	}
	j.buf = append(j.buf, '}', '}', '}', '\n')
	return nil
}

func (j *jsonWatch) spill() error {
	if len(j.buf) < spillAt {
		return nil
	}
	return j.write()
}

func (j *jsonWatch) write() error {
	_, err := j.w.Write(j.buf)
	j.buf = j.buf[:0]
	if err != nil {
		return errSinkClosed
	}
	return nil
}

func (j *jsonWatch) flush() error {
	if len(j.buf) == 0 {
		return nil
	}
	if err := j.write(); err != nil {
		return err
	}
	if err := j.flusher.Flush(); err != nil {
		return errSinkClosed
	}
	if cap(j.buf) > spillAt*2 {
		j.buf = nil
	}
	return nil
}

// fail sends the error that ended the watch, as an ERROR event.
func (j *jsonWatch) fail(err error) {
	data, marshalErr := json.Marshal(struct {
		Type   watch.EventType `json:"type"`
		Object any             `json:"object"`
	}{watch.Error, statusOf(err)})
	if marshalErr != nil {
		return
	}
	j.buf = append(append(j.buf, data...), '\n')
	_ = j.flush()
}

// decodedEvents is how many decoded objects wait for the library to write them. If a
// client does not read, all of them stay in memory, up to a megabyte each.
const decodedEvents = 4

// stateBatch is how many objects of an initial state a conversion webhook gets at a time.
const stateBatch = 500

// Watch returns a watch of decoded objects to the library, for protobuf, Tables and
// partial metadata. Plain JSON bypasses it (watch_json.go).
func (r *resource) Watch(ctx context.Context, options *metainternal.ListOptions) (watch.Interface, error) {
	plan, err := r.planWatch(options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	state, err := r.openState(ctx, options, plan)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &objectWatch{r: r, ctx: ctx, cancel: cancel, events: make(chan watch.Event, decodedEvents)}
	stop := context.AfterFunc(r.api.closing, cancel)
	setDeadlineAfter(ctx)
	r.api.watches.Add(1)
	go func() {
		defer r.api.watches.Done()
		defer stop()
		w.run(func() error { return r.runWatch(ctx, options, plan, state, w) })
	}()
	return w, nil
}

// objectWatch is a sink that decodes. Its goroutine ends when the watcher
// stops it or its context ends.
type objectWatch struct {
	r      *resource
	ctx    context.Context
	cancel context.CancelFunc
	events chan watch.Event

	// state are objects of the initial state that one call of a conversion webhook shall
	// convert.
	state []object.Object
}

// run follows until fn returns. It has no request that would answer a panic, which would end the
// server.
func (w *objectWatch) run(fn func() error) {
	defer close(w.events)
	defer func() {
		if p := recover(); p != nil {
			w.r.api.Logger.Error("watch panicked", "resource", w.r.v.Resource().String(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			_ = w.send(watch.Event{Type: watch.Error, Object: statusOf(apierrors.NewInternalError(errors.New("the watch panicked; see the server's log")))})
		}
	}()
	if err := fn(); err != nil {
		_ = w.send(watch.Event{Type: watch.Error, Object: statusOf(err)})
	}
}

func (w *objectWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *objectWatch) Stop() { w.cancel() }

func (w *objectWatch) send(e watch.Event) error {
	select {
	case w.events <- e:
		return nil
	case <-w.ctx.Done():
		return errSinkClosed
	}
}

func (w *objectWatch) added(o object.Object) error {
	if w.r.v.DecodeAll == nil {
		return w.changed(watch.Added, nil, o)
	}
	if w.state = append(w.state, o); len(w.state) < stateBatch {
		return nil
	}
	return w.flush()
}

func (w *objectWatch) changed(t watch.EventType, _ *store.Event, o object.Object) error {
	obj, err := w.r.decode(o)
	if err != nil {
		return err
	}
	return w.send(watch.Event{Type: t, Object: obj})
}

func (w *objectWatch) bookmark(revision int64, initial bool) error {
	if err := w.flush(); err != nil { // the state comes first
		return err
	}
	obj := w.r.v.New()
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	accessor.SetResourceVersion(strconv.FormatInt(revision, 10))
	if initial {
		accessor.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	obj.GetObjectKind().SetGroupVersionKind(w.r.v.GVK)
	return w.send(watch.Event{Type: watch.Bookmark, Object: obj})
}

func (w *objectWatch) flush() error {
	if len(w.state) == 0 {
		return nil
	}
	objects, err := w.r.decodeAll(w.ctx, w.state)
	w.state = nil
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := w.send(watch.Event{Type: watch.Added, Object: obj}); err != nil {
			return err
		}
	}
	return nil
}

// statusOf converts an error to the object of an ERROR event.
func statusOf(err error) runtime.Object {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(errors.New("the watch failed; the server's log says why"))
	}
	s := status.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	return &s
}
