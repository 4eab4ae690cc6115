package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// document is a built document. It is kept compressed: several megabytes of JSON shrink
// to a tenth, and most clients ask for gzip.
type document struct {
	url  string // path of the document on this server
	etag string // hash of the JSON; the same for every format
	json []byte // gzipped
	// proto is the same document in protobuf, gzipped. It is built at the first request,
	// since few clients ask for it. Guarded by Service.mu.
	proto   []byte
	toProto func(json []byte) ([]byte, error)
}

func newDocument(url string, json []byte, toProto func([]byte) ([]byte, error)) (*document, error) {
	packed, err := pack(json)
	if err != nil {
		return nil, err
	}
	return &document{url: url, etag: fmt.Sprintf("%X", sha256.Sum256(json)), json: packed, toProto: toProto}, nil
}

// encoded returns the document in a format, gzipped.
func (d *document) encoded(f format) ([]byte, error) {
	if !f.proto {
		return d.json, nil
	}
	if d.proto != nil {
		return d.proto, nil
	}
	json, err := unpack(d.json)
	if err != nil {
		return nil, err
	}
	proto, err := d.toProto(json)
	if err != nil {
		return nil, fmt.Errorf("convert %s to protobuf: %w", d.url, err)
	}
	d.proto, err = pack(proto)
	return d.proto, err
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
	content := packed
	if acceptsGzip(r.Header.Values("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
	} else {
		plain, err := unpack(packed)
		if err != nil {
			http.Error(w, "the document cannot be read", http.StatusInternalServerError)
			return
		}
		content = plain
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
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
