package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
)

const (
	// maxRequest is the maximum size of a request's body, in bytes.
	maxRequest = 16 << 10

	// Rates per second and address: enrolments (each costs a hash), and
	// requests with a credential. A machine with a hundred nodes stays below
	// the second.
	enrolRate, enrolBurst = 5, 20
	callRate, callBurst   = 100, 400
)

// NodeHandler serves v1alpha1.NodePath, the nodes' endpoint. It authenticates
// by itself: enrolment by a bootstrap token, everything else by the node's own
// credential, which is valid for that node's requests only.
func (m *Mesh) NodeHandler() http.Handler {
	enrols, calls := newLimiter(enrolRate, enrolBurst), newLimiter(callRate, callBurst)
	mux := http.NewServeMux()
	serve := func(method, path string, limit *limiter, answer func(*http.Request) (any, error)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, req *http.Request) {
			if req.Method != method {
				w.Header().Set("Allow", method)
				m.fail(w, req, deny(reasonMethod, "use %s", method))
				return
			}
			if !limit.allow(req) {
				m.fail(w, req, deny(reasonBusy, "too many requests from one address: try again in a second"))
				return
			}
			m.answer(w, req, answer)
		})
	}
	serve(http.MethodPost, v1alpha1.EnrolPath, enrols, m.serveEnrol)
	serve(http.MethodPost, v1alpha1.HeartbeatPath, calls, m.byNode(func(ctx context.Context, n Node, _ *http.Request) (any, error) {
		return m.Heartbeat(ctx, n)
	}))
	serve(http.MethodGet, v1alpha1.PeersPath, calls, m.byNode(m.servePeers))
	serve(http.MethodPost, v1alpha1.LeavePath, calls, m.byNode(func(ctx context.Context, n Node, _ *http.Request) (any, error) {
		return struct{}{}, m.Leave(ctx, n)
	}))
	serve(http.MethodPost, v1alpha1.DrainedPath, calls, m.byNode(func(ctx context.Context, n Node, _ *http.Request) (any, error) {
		return struct{}{}, m.Drained(ctx, n)
	}))
	mux.HandleFunc("/", m.notFound)
	return mux
}

func (m *Mesh) serveEnrol(req *http.Request) (any, error) {
	var r v1alpha1.EnrolRequest
	if err := read(req, &r); err != nil {
		return nil, err
	}
	return m.Enrol(req.Context(), r)
}

func (m *Mesh) servePeers(ctx context.Context, n Node, req *http.Request) (any, error) {
	q := req.URL.Query()
	var since int64
	var wait time.Duration
	var err error
	if text := q.Get("since"); text != "" {
		if since, err = strconv.ParseInt(text, 10, 64); err != nil || since < 0 {
			return nil, invalid("since", "%.40q is not a revision", text)
		}
	}
	if text := q.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 {
			return nil, invalid("wait", "%.40q is not a duration", text)
		}
	}
	return m.Peers(ctx, n, since, wait)
}

// byNode authenticates the node before it calls answer.
func (m *Mesh) byNode(answer func(context.Context, Node, *http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(req *http.Request) (any, error) {
		credential, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
		if !ok {
			return nil, deny(v1alpha1.ReasonUnknownNode, "show the node's credential: Authorization: Bearer %s…", v1alpha1.CredentialPrefix)
		}
		n, err := m.Authenticate(req.Context(), credential)
		if err != nil {
			return nil, err
		}
		return answer(req.Context(), n, req)
	}
}

// read decodes a request's body. It refuses unknown fields, because a misspelt
// field would otherwise get its default.
func read(req *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(nil, req.Body, maxRequest))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return deny(reasonTooLarge, "the body is larger than %d bytes", maxRequest)
	case err != nil:
		return invalid("body", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return invalid("body", "there is more than one JSON value")
	}
	return nil
}

// answer writes the result of a request.
func (m *Mesh) answer(w http.ResponseWriter, req *http.Request, answer func(*http.Request) (any, error)) {
	value, err := answer(req)
	if err != nil {
		m.fail(w, req, err)
		return
	}
	write(w, http.StatusOK, value)
}

func write(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // an error means that the client is gone
}

func (m *Mesh) notFound(w http.ResponseWriter, req *http.Request) {
	m.fail(w, req, deny(reasonNotFound, "there is nothing at %.200s", req.URL.Path))
}

// codes are the HTTP statuses of denials. The default is 403.
var codes = map[string]int{
	reasonInvalid:                 http.StatusBadRequest,
	reasonNotFound:                http.StatusNotFound,
	reasonMethod:                  http.StatusMethodNotAllowed,
	reasonTooLarge:                http.StatusRequestEntityTooLarge,
	reasonBusy:                    http.StatusTooManyRequests,
	v1alpha1.ReasonUnknownToken:   http.StatusUnauthorized,
	v1alpha1.ReasonUnknownNode:    http.StatusUnauthorized,
	v1alpha1.ReasonNameTaken:      http.StatusConflict,
	v1alpha1.ReasonNonceReplayed:  http.StatusConflict,
	v1alpha1.ReasonNotDraining:    http.StatusConflict,
	v1alpha1.ReasonNodeRegistered: http.StatusConflict,
}

// fail answers with a Status, as the rest of the API does. Internal errors are
// logged and not sent to the client.
func (m *Mesh) fail(w http.ResponseWriter, req *http.Request, err error) {
	var d *Denial
	code := http.StatusForbidden
	switch {
	case errors.As(err, &d):
		if known, ok := codes[d.Reason]; ok {
			code = known
		}
	case req.Context().Err() != nil:
		d, code = deny("ServiceUnavailable", "the request took too long: try again"), http.StatusServiceUnavailable
	default:
		m.opts.Logger.Error("mesh request broke", "path", req.URL.Path, "error", err)
		d, code = deny("InternalError", "the server could not complete the request; its log says why"), http.StatusInternalServerError
	}
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	write(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: metav1.StatusReason(d.Reason), Message: d.Message,
	})
}

// TokenHandler serves v1alpha1.TokensPath: bootstrap tokens, for people. The
// server has authorized the client before.
func (m *Mesh) TokenHandler() http.Handler {
	mux := http.NewServeMux()
	serve := func(pattern string, answer func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) { m.answer(w, req, answer) })
	}
	serve("POST "+v1alpha1.TokensPath, m.serveMint)
	serve("GET "+v1alpha1.TokensPath, func(req *http.Request) (any, error) {
		return m.Tokens(req.Context(), req.URL.Query().Get("project"))
	})
	serve("DELETE "+v1alpha1.TokensPath+"/{id}", func(req *http.Request) (any, error) {
		return m.Revoke(req.Context(), req.PathValue("id"))
	})
	mux.HandleFunc("/", m.notFound)
	return mux
}

func (m *Mesh) serveMint(req *http.Request) (any, error) {
	var r v1alpha1.TokenRequest
	if err := read(req, &r); err != nil {
		return nil, err
	}
	actor := ""
	if user, ok := genericrequest.UserFrom(req.Context()); ok {
		actor = user.GetName()
	}
	const most = int64(MaxTTL / time.Second)
	ttl := time.Duration(min(max(r.TTLSeconds, 0), most+1)) * time.Second // no overflow
	return m.Mint(req.Context(), Order{Project: r.Project, TTL: ttl, Actor: actor})
}

// Denial is a refusal with a reason for programs (v1alpha1.Reason…) and a text
// for people. Any other error of this package is an internal error.
type Denial struct {
	Reason  string
	Message string
}

func (d *Denial) Error() string { return d.Message }

func deny(reason, format string, args ...any) *Denial {
	return &Denial{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// invalid refuses a field of a request.
func invalid(field, format string, args ...any) *Denial {
	return deny(reasonInvalid, "%s: %s", field, fmt.Sprintf(format, args...))
}

// Reasons that Kubernetes defines too.
const (
	reasonInvalid  = "BadRequest"
	reasonNotFound = "NotFound"
	reasonBusy     = "TooManyRequests"
	reasonTooLarge = "RequestEntityTooLarge"
	reasonMethod   = "MethodNotAllowed"
)

// Refusals with a fixed text. The first two reveal as little as possible.
var (
	errUnknownToken = deny(v1alpha1.ReasonUnknownToken, "the bootstrap token is not valid")
	errUnknownNode  = deny(v1alpha1.ReasonUnknownNode, "no such node: it has left the mesh, or never was in it")
	errTokenEnded   = deny(v1alpha1.ReasonTokenConsumed, "the token was used or ended by another request at the same moment")
)
