// Package openapi describes the API to its clients, as OpenAPI v2 and v3.
//
// kubectl reads these documents to explain kinds, to check manifests, to merge
// lists by their keys and to learn which query parameters an operation takes.
// The schemas of the built-in kinds are Kubernetes' own, generated once and embedded
// (builtin.json.gz). Custom kinds bring their own schema. One builder makes the paths
// of both (paths.go).
//
// Documents are built at the first request, never at start-up, and kept compressed: the
// inputs are large and are dropped afterwards. A changed set of kinds rebuilds only the
// documents of the changed groups. The index builds no document of a group of custom kinds:
// the hash of its definitions is that of the document. The v2 document of all kinds is
// written group by group.
//
// The package does not use the store. Begin with ServeHTTP.
package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/munnerz/goautoneg"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
)

//go:generate go run -C gen .

// Service answers requests for OpenAPI documents.
type Service struct {
	registry *kind.Registry
	version  string // of this server; part of every document

	mu     sync.Mutex                              // guards all fields below
	seen   *kind.Snapshot                          // the snapshot that groups was built from
	groups map[schema.GroupVersion][]*kind.Version // the kinds of each v3 document
	v3     map[schema.GroupVersion]*document       // the documents built so far
	index  *document                               // of v3; nil if not built
	v2     *document                               // nil if not built
}

// New creates the service. It builds no document yet.
func New(reg *kind.Registry, version string) *Service {
	return &Service{registry: reg, version: version}
}

// ServeHTTP answers /openapi/v2, /openapi/v3 (the index of group versions) and
// /openapi/v3/api/v1 or /openapi/v3/apis/{group}/{version}.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	switch path := r.URL.Path; path {
	case "/openapi/v2":
		s.answer(w, r, formatsV2, s.documentV2)
	case "/openapi/v3":
		s.answer(w, r, formatsIndex, s.documentIndex)
	default:
		gv, ok := parseDocumentPath(path)
		if !ok {
			http.NotFound(w, r)
			return
		}
		s.answer(w, r, formatsV3, func() (*document, error) { return s.documentV3(gv) })
	}
}

// answer negotiates the format, builds the document if needed and writes it.
func (s *Service) answer(w http.ResponseWriter, r *http.Request, formats []format, build func() (*document, error)) {
	f, ok := negotiate(r.Header.Get("Accept"), formats)
	if !ok {
		http.Error(w, "no acceptable format", http.StatusNotAcceptable)
		return
	}
	d, packed, err := s.prepare(f, build)
	if err != nil {
		slog.ErrorContext(r.Context(), "build OpenAPI document", "path", r.URL.Path, "error", err)
		http.Error(w, "the document cannot be built", http.StatusInternalServerError)
		return
	}
	if d == nil {
		w.WriteHeader(http.StatusNotFound) // without a text, as in Kubernetes
		return
	}
	d.write(w, r, f, packed)
}

// prepare returns the document, or nil if there is none, and its compressed bytes in the
// format. It builds what is missing. Concurrent requests wait and share the result.
func (s *Service) prepare(f format, build func() (*document, error)) (*document, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	d, err := build()
	if d == nil || err != nil {
		return nil, nil, err
	}
	packed, err := d.encoded(f)
	return d, packed, err
}

// refresh drops the documents of changed kinds.
func (s *Service) refresh() {
	now := s.registry.Snapshot()
	if now == s.seen {
		return
	}
	groups := map[schema.GroupVersion][]*kind.Version{}
	for _, k := range now.Kinds {
		for _, v := range k.Versions {
			gv := v.GVK.GroupVersion()
			groups[gv] = append(groups[gv], v)
		}
	}
	v3 := map[schema.GroupVersion]*document{}
	for gv, d := range s.v3 {
		if slices.Equal(groups[gv], s.groups[gv]) {
			v3[gv] = d
		}
	}
	s.seen, s.groups, s.v3 = now, groups, v3
	s.index, s.v2 = nil, nil
}

// documentPath returns the path of a group version's document below /openapi/v3/.
func documentPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

// parseDocumentPath is the inverse of documentPath, for a whole URL path.
func parseDocumentPath(path string) (schema.GroupVersion, bool) {
	rest, ok := strings.CutPrefix(path, "/openapi/v3/")
	if !ok {
		return schema.GroupVersion{}, false
	}
	parts := strings.Split(rest, "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	case len(parts) == 3 && parts[0] == "apis" && parts[1] != "":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return schema.GroupVersion{}, false
}

// format is an encoding of a document.
type format struct {
	accept  string // the media type in the Accept header
	content string // the media type in the Content-Type header
	proto   bool
}

// Protobuf has two names: the older one with "@", which is not a valid media type, and
// the one with ".", which is sent.
var (
	formatsIndex = []format{jsonFormat}
	formatsV2    = []format{jsonFormat, protoFormat("v2", "@"), protoFormat("v2", ".")}
	formatsV3    = []format{jsonFormat, protoFormat("v3", "@"), protoFormat("v3", ".")}

	jsonFormat = format{accept: "application/json", content: "application/json"}
)

func protoFormat(version, separator string) format {
	name := "application/com.github.proto-openapi.spec." + version
	return format{accept: name + separator + "v1.0+protobuf", content: name + ".v1.0+protobuf", proto: true}
}

// negotiate picks the first format in the client's order that is available.
func negotiate(accept string, formats []format) (format, bool) {
	if accept == "" {
		return formats[0], true
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, f := range formats {
			switch clause.Type + "/" + clause.SubType {
			case f.accept, "application/*", "*/*":
				return f, true
			}
		}
	}
	return format{}, false
}

// document is a built document. It is kept compressed: several megabytes of JSON shrink
// to a tenth, and most clients ask for gzip.
type document struct {
	url  string // path of the document on this server
	etag string // hash of the JSON, or of what it is made from; the same for every format
	json []byte // gzipped
	// proto is the same document in protobuf, gzipped. It is built at the first request,
	// since few clients ask for it. Guarded by Service.mu.
	proto   []byte
	toProto func(json []byte) ([]byte, error) // both packed
}

func newDocument(url string, json []byte, toProto func([]byte) ([]byte, error)) (*document, error) {
	packed, err := pack(json)
	if err != nil {
		return nil, err
	}
	return &document{url: url, etag: hashOf(json), json: packed, toProto: func(packed []byte) ([]byte, error) {
		json, err := unpack(packed)
		if err != nil {
			return nil, err
		}
		proto, err := toProto(json)
		if err != nil {
			return nil, err
		}
		return pack(proto)
	}}, nil
}

func hashOf(text []byte) string { return fmt.Sprintf("%X", sha256.Sum256(text)) }

// encoded returns the document in a format, gzipped.
func (d *document) encoded(f format) ([]byte, error) {
	if !f.proto {
		return d.json, nil
	}
	if d.proto != nil {
		return d.proto, nil
	}
	proto, err := d.toProto(d.json)
	if err != nil {
		return nil, fmt.Errorf("convert %s to protobuf: %w", d.url, err)
	}
	d.proto = proto
	return d.proto, nil
}

// hashed returns the document's URL with its hash. Clients may cache that URL without a
// time limit.
func (d *document) hashed() string { return d.url + "?hash=" + d.etag }

// write answers a request. If the hash in the query is that of an older document, it
// redirects the client to the current one.
func (d *document) write(w http.ResponseWriter, r *http.Request, f format, packed []byte) {
	h := w.Header()
	h.Set("Vary", "Accept, Accept-Encoding")
	h.Set("ETag", `"`+d.etag+`"`)
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != d.etag {
			http.Redirect(w, r, d.hashed(), http.StatusMovedPermanently)
			return
		}
		h.Set("Cache-Control", "public, immutable")
		h.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	h.Set("Content-Type", f.content)
	var content io.ReadSeeker = bytes.NewReader(packed)
	if acceptsGzip(r.Header.Values("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
	} else {
		content = &unpacked{packed: packed}
	}
	http.ServeContent(w, r, "", time.Time{}, content)
}

// unpacked reads a packed document for http.ServeContent, without having all of it in memory: with many kinds it is
// a hundred megabytes.
type unpacked struct {
	packed []byte
	at     int64     // where the next Read begins
	reader io.Reader // nil before the first Read
	read   int64     // where reader is
}

// Seek implements io.Seeker. A gzip file ends with the size of its content.
func (u *unpacked) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
		u.at = offset
	case io.SeekCurrent:
		u.at += offset
	case io.SeekEnd:
		u.at = int64(binary.LittleEndian.Uint32(u.packed[len(u.packed)-4:])) + offset
	}
	return u.at, nil
}

// Read implements io.Reader.
func (u *unpacked) Read(b []byte) (n int, err error) {
	if u.reader == nil || u.read > u.at {
		u.read = 0
		if u.reader, err = gzip.NewReader(bytes.NewReader(u.packed)); err != nil {
			return 0, err
		}
	}
	if _, err = io.CopyN(io.Discard, u.reader, u.at-u.read); err != nil {
		return 0, err
	}
	n, err = u.reader.Read(b)
	u.at += int64(n)
	u.read = u.at
	return n, err
}

func acceptsGzip(headers []string) bool {
	for _, coding := range strings.Split(strings.Join(headers, ","), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		if strings.TrimSpace(name) != "gzip" {
			continue
		}
		weight = strings.ReplaceAll(weight, " ", "")
		return weight != "q=0" && !strings.HasPrefix(weight, "q=0.000")
	}
	return false
}

// writers pools compressors, which take a megabyte each. The first request of the index
// builds every document while a client waits, so speed matters more than the last fifth
// of the size.
var writers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

func pack(plain []byte) ([]byte, error) {
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return bytes.Clone(out.Bytes()), nil
}

func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
