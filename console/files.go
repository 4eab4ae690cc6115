package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed static
var static embed.FS

// files serves the static files, compressed once at the start.
type files struct {
	byName map[string]file
}

type file struct {
	contentType, etag string
	plain, gzipped    []byte
}

func newFiles() *files {
	f := &files{byName: map[string]file{}}
	root, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the directory is embedded
	}
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		f.byName[name] = file{contentType: contentType(name), etag: `"` + hex.EncodeToString(sum[:8]) + `"`, plain: data, gzipped: compress(data)}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return f
}

// contentType does not ask the machine's MIME tables, which may lack a type.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(path.Ext(name))
}

func compress(data []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // the level is valid, and a buffer takes everything
	}
	return out.Bytes()
}

// ServeHTTP serves one file. A browser asks again each time and gets 304 while the
// file is the same, so that a new version of the server has no old page.
func (f *files) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name := strings.TrimPrefix(req.URL.Path, Path)
	name = cmp.Or(name, "index.html")
	found, ok := f.byName[name]
	if !ok {
		http.NotFound(w, req)
		return
	}
	header := w.Header()
	header.Set("Content-Type", found.contentType)
	header.Set("ETag", found.etag)
	header.Set("Cache-Control", "no-cache")
	header.Set("Vary", "Accept-Encoding")
	if req.Header.Get("If-None-Match") == found.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := found.plain
	if strings.Contains(req.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		body = found.gzipped
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client disconnected
}
