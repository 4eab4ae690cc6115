package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"strings"
	"sync"

	"github.com/exeunt/exeunt/sqldb"
)

const (
	// maxMediaType exceeds what RFC 6838 allows for type and subtype.
	maxMediaType = 255
	// maxCachedMediaTypes bounds the cache, because clients can invent types.
	maxCachedMediaTypes = 1000
	// maxMediaTypes is how many types one manifest may name: each is a row that
	// is never deleted. Real manifests name fewer than ten.
	maxMediaTypes = 500
)

// mediaTypes finds the ids of media types. Rows are never changed or deleted, so
// the cache stays valid.
type mediaTypes struct {
	db *sqldb.DB

	mu  sync.Mutex
	ids map[string]int64 // guarded by mu
}

// find returns the ids of media types, and creates the missing ones in their own
// transaction: an id may be cached only after its commit. names are sorted, so
// that two pushes cannot deadlock.
func (m *mediaTypes) find(ctx context.Context, w *writer, names []string) (map[string]int64, error) {
	ids, unknown := m.cached(names)
	if len(unknown) == 0 {
		return ids, nil
	}
	list := sqldb.JSON(unknown)
	found := map[string]int64{}
	take := func(row sqldb.Row) error {
		var name string
		var id int64
		err := row.Scan(&name, &id)
		found[name] = id
		return err
	}
	if err := sqldb.Each(ctx, m.db, take, findMediaTypes(m.db.Engine()), list); err != nil {
		return nil, fmt.Errorf("find media types: %w", err)
	}
	if len(found) < len(unknown) {
		err := w.do(ctx, func(tx *sqldb.Tx) error { return m.insert(ctx, tx, list, take) })
		if err != nil {
			return nil, fmt.Errorf("store media types: %w", err)
		}
	}
	if len(found) < len(unknown) {
		return nil, errors.New("find media types: some rows are missing after the insert")
	}
	maps.Copy(ids, found)
	m.cache(found)
	return ids, nil
}

// cached looks names up in the cache.
func (m *mediaTypes) cached(names []string) (ids map[string]int64, unknown []string) {
	ids = make(map[string]int64, len(names))
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if id, ok := m.ids[name]; ok {
			ids[name] = id
		} else {
			unknown = append(unknown, name)
		}
	}
	return ids, unknown
}

func (m *mediaTypes) cache(ids map[string]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids == nil || len(m.ids)+len(ids) > maxCachedMediaTypes {
		m.ids = make(map[string]int64, len(ids))
	}
	maps.Copy(m.ids, ids)
}

// insert creates the missing ids, and reads all of them.
func (m *mediaTypes) insert(ctx context.Context, tx *sqldb.Tx, list string, take func(sqldb.Row) error) error {
	insert := insertMediaTypesSQLite
	if m.db.Engine() == sqldb.Postgres {
		insert = insertMediaTypesPostgres
	}
	var b sqldb.Batch
	b.Exec(insert, list)
	b.Query(take, findMediaTypes(m.db.Engine()), list)
	return tx.Send(ctx, &b)
}

func findMediaTypes(engine sqldb.Engine) string {
	if engine == sqldb.Postgres {
		return findMediaTypesPostgres
	}
	return findMediaTypesSQLite
}

// checkMediaType checks a name before it is stored forever.
func checkMediaType(name string) bool {
	if name == "" || len(name) > maxMediaType {
		return false
	}
	return visible(name)
}

// visible says that a text has only visible ASCII characters, as all names here
// do. PostgreSQL refuses a text with a zero byte or invalid UTF-8, even in a
// query.
func visible(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < '!' || c > '~' })
}

// baseMediaType is a Content-Type without its parameters.
func baseMediaType(contentType string) string {
	base, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		base, _, _ = strings.Cut(contentType, ";")
	}
	return strings.TrimSpace(base)
}

// checkContentType refuses the types that a web page can send to any server
// without a CORS preflight. Registry clients send bytes as
// application/octet-stream, or without a type. parseManifest checks the types of
// manifests.
func checkContentType(kind Kind, req *http.Request) error {
	if kind != UploadStart && kind != UploadPatch && kind != UploadPut {
		return nil
	}
	switch sent := strings.ToLower(baseMediaType(req.Header.Get("Content-Type"))); sent {
	case "text/plain", "application/x-www-form-urlencoded", "multipart/form-data":
		return errorf(Unsupported, "an upload cannot be %s: send it as application/octet-stream", sent).as(http.StatusUnsupportedMediaType)
	}
	return nil
}
