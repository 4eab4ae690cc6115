// Package registry is the OCI registry: distribution-spec 1.1 over HTTP, with
// its metadata in SQL and its bytes in a blob store. It promises:
//
//   - Whatever was answered with 201 survives a power cut. Bytes are synced
//     before the row that names them is committed, so no row ever points at
//     missing bytes.
//   - The registry computes a digest while the bytes arrive, and checks it
//     before a client can read them. Content that does not match is removed.
//   - A manifest is stored byte for byte, and only if its repository has the
//     content that it refers to. Its subject may be missing, as the
//     specification requires.
//   - Memory is bounded: blobs are streamed, manifests are at most 4 MiB.
//   - No transaction is open while bytes are read or written.
//
// Requests delete nothing from the blob store. When a row is deleted, a trigger
// queues its path for the collector.
//
// Begin with route.go, which says what every request means. Each kind of request
// has a handler, in a file of the same name. sql.go holds the statements.
package registry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
)

// Config configures a Registry. Zero values have a default.
type Config struct {
	DB    *sqldb.DB
	Blobs blobstore.Store
	// Refuse returns the reason to refuse a request, before anything else is
	// checked; empty means accept. Default: accept all.
	Refuse func(*http.Request) string
	// Full reports whether pushes are refused, because the disk is full. Default: they never are.
	Full func() bool
	// Admit identifies the client of a request. An *Error refuses it. Default:
	// every client may do everything.
	Admit func(*http.Request) (Client, error)
	// Challenge is the header WWW-Authenticate of a 401: how to get a token for a scope.
	// Reason is Error.Reason. Default: basic authentication.
	Challenge func(req *http.Request, scope, reason string) string
	// Record wraps the handler of a request, to record what it does. The client is nil if
	// it was not admitted; to is empty if the path is malformed. May be nil.
	Record func(client Client, to Request, next http.Handler) http.Handler
	// Declare creates a missing repository on the first push, as the client that
	// pushes: it creates the object, and triggers create the row. An *Error is for
	// the client. Nil means that there is no API, and the registry creates the row itself.
	Declare func(ctx context.Context, client Client, repository string) error
	// Upstream returns where a repository is fetched from; nil: it is not a cached one. May be nil.
	Upstream func(ctx context.Context, repository string) (Upstream, error)
	// Adopt is Declare for what is fetched: as the server itself.
	Adopt func(ctx context.Context, repository string) error
	// Touched is called with the id of a repository whose content a client has
	// changed. It must be quick. May be nil.
	Touched func(repository int64)
	// Refresh updates the status of a repository now, for an operator who has
	// changed it and reads it next. Nil means that there is no status.
	Refresh func(ctx context.Context, repository int64) error
	// SmallBlobs is the maximum size of a blob that is stored in the database,
	// if it is sent in one request. 0 means 64 KiB; negative: no blob is.
	SmallBlobs int64
	// ChunkMinLength is the recommended minimum size of a chunk. Smaller chunks
	// are accepted. 0 means no recommendation.
	ChunkMinLength int64
	// Redirect sends clients to the blob store for the bytes of blobs, if it is
	// a blobstore.Redirector.
	Redirect bool
	// Quotas limit what clients can store.
	Quotas Quotas
	// MaxRequests limits the requests that are served at once. 0:
	// inflight.DefaultRequests.
	MaxRequests int
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Logger logs what clients are not told. Default slog.Default.
	Logger *slog.Logger
}

// Registry answers requests below /v2/. It is safe for concurrent use. Any
// number of replicas may share a PostgreSQL database and a blob store.
type Registry struct {
	db       *sqldb.DB
	blobs    blobstore.Store
	refuse   func(*http.Request) string
	full     func() bool // nil means never
	admit    func(*http.Request) (Client, error)
	offer    func(req *http.Request, scope, reason string) string // Config.Challenge
	record   func(client Client, to Request, next http.Handler) http.Handler
	declare  func(ctx context.Context, client Client, repository string) error
	upstream func(ctx context.Context, repository string) (Upstream, error)
	adopt    func(ctx context.Context, repository string) error
	fetches  fetches
	touched  func(repository int64)
	refresh  func(ctx context.Context, repository int64) error
	chunkMin int64
	small    int64                // Config.SmallBlobs
	redirect blobstore.Redirector // nil means that the registry sends the bytes itself
	now      func() time.Time
	log      *slog.Logger
	quotas   atomic.Pointer[Quotas]
	inFlight *inflight.Limit
	writer   *writer
	empty    emptyUploads
	pulls    pulls
	types    mediaTypes
	handlers [kinds]handler
}

// handler answers a request, or returns an error for the client.
type handler func(w http.ResponseWriter, req *http.Request, to Request) error

// New makes a Registry. It does no I/O.
func New(c Config) *Registry {
	if c.Refuse == nil {
		c.Refuse = func(*http.Request) string { return "" }
	}
	if c.Admit == nil {
		c.Admit = func(*http.Request) (Client, error) { return anyone{}, nil }
	}
	if c.Challenge == nil {
		c.Challenge = func(*http.Request, string, string) string { return `Basic realm="exeunt", charset="UTF-8"` }
	}
	if c.Record == nil {
		c.Record = func(_ Client, _ Request, next http.Handler) http.Handler { return next }
	}
	if c.Touched == nil {
		c.Touched = func(int64) {}
	}
	if c.Refresh == nil {
		c.Refresh = func(context.Context, int64) error { return nil }
	}
	c.SmallBlobs = cmp.Or(c.SmallBlobs, smallBlobs)
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	r := &Registry{
		db: c.DB, blobs: c.Blobs, refuse: c.Refuse, full: c.Full, admit: c.Admit, offer: c.Challenge, record: c.Record, declare: c.Declare, upstream: c.Upstream, adopt: c.Adopt, touched: c.Touched, refresh: c.Refresh,
		chunkMin: c.ChunkMinLength, small: c.SmallBlobs, inFlight: inflight.New(c.MaxRequests),
		now: c.Now, log: c.Logger, writer: newWriter(c.DB, c.Logger), types: mediaTypes{db: c.DB}, empty: emptyUploads{db: c.DB},
	}
	r.fetches.ctx, r.fetches.end = context.WithCancel(context.Background())
	r.fetches.under = map[string]*fetch{}
	r.SetQuotas(c.Quotas)
	if c.Redirect {
		r.redirect, _ = c.Blobs.(blobstore.Redirector)
	}
	r.handlers = [kinds]handler{
		Ping:           r.ping,
		Catalog:        r.catalog,
		TagList:        r.tagList,
		Referrers:      r.referrers,
		BlobGet:        r.blobGet,
		BlobHead:       r.blobGet,
		BlobDelete:     r.blobDelete,
		UploadStart:    r.uploadStart,
		UploadStatus:   r.uploadStatus,
		UploadPatch:    r.uploadPatch,
		UploadPut:      r.uploadPut,
		UploadCancel:   r.uploadCancel,
		ManifestGet:    r.manifestGet,
		ManifestHead:   r.manifestGet,
		ManifestPut:    r.manifestPut,
		ManifestDelete: r.manifestDelete,
	}
	return r
}

// ServeHTTP answers one request.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	// Old docker clients take a server without this header for API v1.
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if why := r.refuse(req); why != "" {
		r.fail(w, req, errorf(Denied, "%s", why))
		return
	}
	to, malformed := Parse(req.Method, req.URL)
	client, err := r.admit(req)
	if err == nil && malformed != nil {
		if err = malformed; client != nil && !client.Known() {
			err = errLogin // a stranger learns nothing about paths
		}
	}
	if err == nil && (client == nil || client.Known()) {
		inflight.Known(req.Context())
	}
	r.record(client, to, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		refusal := err
		if refusal == nil {
			refusal = r.serve(w, req, client, to)
		}
		if refusal != nil {
			r.challenge(w, req, to, refusal)
			r.fail(w, req, refusal)
		}
	})).ServeHTTP(w, req)
}

// challenge adds to a 401 how the client can log in.
func (r *Registry) challenge(w http.ResponseWriter, req *http.Request, to Request, err error) {
	var refused *Error
	if errors.As(err, &refused) && refused.Code == Unauthorized {
		w.Header().Set("WWW-Authenticate", r.offer(req, scope(to, req.URL.Query().Get("from")), refused.Reason))
	}
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request, client Client, to Request) (err error) {
	if req, err = permit(client, req, to); err != nil {
		return err
	}
	if err := checkContentType(to.Kind, req); err != nil {
		return err
	}
	if err := r.quotas.Load().checkLength(to.Kind, req); err != nil {
		return err
	}
	if to.Kind.grows() {
		if err := r.refusePush(req.Context(), to); err != nil {
			return err
		}
	}
	if to.Kind.grows() && r.full != nil && r.full() {
		return errorf(Unavailable, "the server's disk is full, so it accepts only what gives space back, such as deletions")
	}
	name := ""
	if client != nil && !client.Known() {
		name = anonymous
		inflight.Guest(req.Context())
	}
	slot, ok := r.inFlight.BeginFor(name, w, req)
	if !ok {
		return errBusy
	}
	defer slot.End()
	if req.ContentLength != 0 && req.Body != nil {
		body := slot.Body(req.Body, r.bodyMemory(to.Kind, req.ContentLength))
		// A copy: net/http looks at the Body of the original before it answers, and
		// would wait for a client that itself waits for "100 Continue".
		req = req.WithContext(req.Context())
		req.Body = body
	}
	if !to.Kind.carriesBlob() {
		ctx, cancel := context.WithTimeout(req.Context(), requestTimeout)
		defer cancel()
		req = req.WithContext(ctx)
	}
	to.client = client
	return r.handlers[to.Kind](slot, req, to)
}

// anonymous is the name by which all clients without credentials share the slots.
const anonymous = "anonymous"

var errBusy = errorf(TooManyRequests, "the registry is serving as many requests as it can; try again later")

// Limited serves requests of clients that may not be known, within the registry's limit
// of requests.
func (r *Registry) Limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !r.inFlight.Serve(anonymous, w, req, next) {
			r.fail(w, req, errBusy)
		}
	})
}

// bodyMemory is how many bytes a handler holds while it reads a body. Length -1:
// unknown.
func (r *Registry) bodyMemory(k Kind, length int64) int64 {
	most := 2*copyBuffer + r.chunkMin // chunkMin: the blob store's own buffer
	if !k.carriesBlob() {
		most = maxManifest
	}
	if length < 0 {
		return most
	}
	return min(length, most)
}

// requestTimeout bounds a request, including its waits for the database, unless
// it carries the bytes of a blob. Those may take hours.
const requestTimeout = 60 * time.Second

// carriesBlob reports whether requests or answers of a kind carry a blob.
func (k Kind) carriesBlob() bool {
	switch k {
	case BlobGet, UploadStart, UploadPatch, UploadPut:
		return true
	}
	return false
}

// grows reports whether requests of a kind need space. The answer to a status, or the end of an upload, needs none.
func (k Kind) grows() bool {
	switch k {
	case UploadStart, UploadPatch, UploadPut, ManifestPut:
		return true
	}
	return false
}

// ping tells the client that this is a registry.
func (r *Registry) ping(w http.ResponseWriter, _ *http.Request, _ Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write([]byte("{}"))
	return clientGone(err)
}
