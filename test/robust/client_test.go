package robust_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	namespace = "robust"
	// answerWithin is how long a client waits for an answer.
	answerWithin = 10 * time.Second
	// One object is used for keyLife, by all clients: a history with many answers that were
	// lost takes long to check.
	keyLife = 2 * time.Second
	keys    = 3 // at the same time
)

// api is a client of one replica, through its link.
type api struct {
	http *http.Client
	base string
}

// answer is a response. Its code is 0 if none came.
type answer struct {
	code int
	body []byte
}

func (a api) do(ctx context.Context, method, path, body string) answer {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, strings.NewReader(body))
	if err != nil {
		return answer{}
	}
	req.GetBody = nil // the transport repeats no write by itself
	req.Header.Set("Content-Type", "application/json")
	response, err := a.http.Do(req)
	if err != nil {
		return answer{}
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}
	}
	return answer{response.StatusCode, data}
}

// meta is what the tests read of an object.
type meta struct {
	Metadata struct {
		Name              string
		Namespace         string
		UID               string `json:"uid"`
		ResourceVersion   string
		DeletionTimestamp *time.Time
		OwnerReferences   []json.RawMessage
	}
	Data map[string]string
}

func (m meta) version() int64 {
	n, err := strconv.ParseInt(m.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (a answer) object() (m meta) {
	if json.Unmarshal(a.body, &m) != nil {
		return meta{}
	}
	return m
}

// history is what all clients did. It is safe for concurrent use.
type history struct {
	began  time.Time
	values atomic.Int64
	unread atomic.Int64 // reads without an answer

	mu    sync.Mutex
	ops   []porcupine.Operation // guarded by mu
	lists []snapshot            // guarded by mu
}

// snapshot is an answer to a LIST.
type snapshot struct {
	version int64
	objects map[string]int64 // versions by name
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) record(client int, in request, call int64, a answer) outcome {
	out := outcome{Code: a.code, Unknown: a.code == 0 || a.code >= 500}
	back := h.now()
	if out.Unknown {
		if in.Verb == doGet {
			h.unread.Add(1)
			return out // it says nothing
		}
		back = math.MaxInt64 // the write may happen later
	}
	if a.code < 300 && !out.Unknown && in.Verb != doDelete {
		m := a.object()
		out.Version = m.version()
		out.Value, _ = strconv.Atoi(m.Data["v"])
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: call, Return: back})
	return out
}

// worker is a client that reads and writes objects that others use too, each request
// through any replica.
type worker struct {
	id       int
	replicas []api
	history  *history
	rng      *rand.Rand
}

func (w *worker) run(ctx context.Context) {
	known := map[string]outcome{} // what this client last read, by name
	for ctx.Err() == nil {
		w.operate(ctx, known)
		if len(known) > 4*keys {
			clear(known)
		}
		time.Sleep(time.Duration(w.rng.IntN(20)) * time.Millisecond)
	}
}

func (w *worker) operate(ctx context.Context, known map[string]outcome) {
	generation := int(time.Since(w.history.began) / keyLife)
	in := request{Name: fmt.Sprintf("k-%d-%d", generation, w.rng.IntN(keys))}
	seen := known[in.Name]
	switch n := w.rng.IntN(10); {
	case n < 3:
		in.Verb = doCreate
	case n < 6 && seen.Version != 0:
		in.Verb, in.Version = doUpdate, seen.Version
	case n < 7:
		in.Verb = doDelete
		if seen.Version != 0 && w.rng.IntN(2) == 0 {
			in.Version = seen.Version
		}
	default:
		in.Verb = doGet
	}
	if in.Verb == doCreate || in.Verb == doUpdate {
		in.Value = int(w.history.values.Add(1))
	}
	replica := w.replicas[w.rng.IntN(len(w.replicas))]
	call := w.history.now()
	out := w.history.record(w.id, in, call, replica.send(ctx, in))
	if out.Unknown || out.Code >= 300 {
		delete(known, in.Name)
		return
	}
	known[in.Name] = out
}

const collection = "/api/v1/namespaces/" + namespace + "/configmaps"

func (a api) send(ctx context.Context, in request) answer {
	object := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"resourceVersion":%q},"data":{"v":"%d"}}`,
		in.Name, positive(in.Version), in.Value)
	switch in.Verb {
	case doCreate:
		return a.do(ctx, "POST", collection, object)
	case doGet:
		return a.do(ctx, "GET", collection+"/"+in.Name, "")
	case doUpdate:
		return a.do(ctx, "PUT", collection+"/"+in.Name, object)
	}
	// In the foreground an object without dependents stays until a collector has looked at
	// it; the families use the other policies.
	options := map[string]any{"propagationPolicy": "Background"}
	if in.Version != 0 {
		options["preconditions"] = map[string]string{"resourceVersion": positive(in.Version)}
	}
	body, _ := json.Marshal(options)
	return a.do(ctx, "DELETE", collection+"/"+in.Name, string(body))
}

// positive is a resourceVersion, or none.
func positive(version int64) string {
	if version == 0 {
		return ""
	}
	return strconv.FormatInt(version, 10)
}

// runLists lists the objects now and then; check compares with the events. A long run lists
// less often: it keeps every list.
func (w *worker) runLists(ctx context.Context) {
	pause := max(200*time.Millisecond, *robustFor/2000)
	for ctx.Err() == nil {
		a := w.replicas[w.rng.IntN(len(w.replicas))].do(ctx, "GET", collection, "")
		var list struct {
			Metadata struct{ ResourceVersion string }
			Items    []meta
		}
		if a.code == 200 && json.NewDecoder(bytes.NewReader(a.body)).Decode(&list) == nil {
			s := snapshot{objects: map[string]int64{}}
			s.version, _ = strconv.ParseInt(list.Metadata.ResourceVersion, 10, 64)
			for _, m := range list.Items {
				s.objects[m.Metadata.Name] = m.version()
			}
			w.history.mu.Lock()
			w.history.lists = append(w.history.lists, s)
			w.history.mu.Unlock()
		}
		time.Sleep(pause)
	}
}
