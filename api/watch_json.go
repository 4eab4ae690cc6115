package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	dst = j.r.appendWire(dst, j.r.prefix, o)
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
