package registry

import (
	"context"
	"encoding/json"
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
	// maxMediaType is more than RFC 6838 allows for type and subtype.
	maxMediaType = 255
	// keptMediaTypes bounds the cache; clients make types up.
	keptMediaTypes = 1000
	// maxMediaTypes is how many types one manifest may name: each is a row that
	// stays for good. Real manifests have a handful.
	maxMediaTypes = 500
)

// mediaTypes finds the ids of media types. Rows are never changed or removed,
// so what was read once stays true.
type mediaTypes struct {
	db *sqldb.DB

	mu  sync.Mutex
	ids map[string]int64 // guarded by mu
}

// find finds the ids of media types, and gives one to each type that has none.
// New types are written in one transaction of their own: an id may be remembered
// only once it is committed. names are sorted, so that two pushes cannot wait for
// each other.
func (m *mediaTypes) find(ctx context.Context, w *writer, names []string) (map[string]int64, error) {
	ids, unknown := m.remembered(names)
	if len(unknown) == 0 {
		return ids, nil
	}
	list, err := json.Marshal(unknown)
	if err != nil {
		return nil, err
	}
	found := map[string]int64{}
	take := func(row sqldb.Row) error {
		var name string
		var id int64
		err := row.Scan(&name, &id)
		found[name] = id
		return err
	}
	if err := m.read(ctx, string(list), take); err != nil {
		return nil, fmt.Errorf("find media types: %w", err)
	}
	if len(found) < len(unknown) {
		err := w.do(ctx, func(tx *sqldb.Tx) error { return m.insert(ctx, tx, string(list), take) })
		if err != nil {
			return nil, fmt.Errorf("store media types: %w", err)
		}
	}
	if len(found) < len(unknown) {
		return nil, errors.New("find media types: some are not there after the insert")
	}
	maps.Copy(ids, found)
	m.remember(found)
	return ids, nil
}

// remembered looks names up in the cache.
func (m *mediaTypes) remembered(names []string) (ids map[string]int64, unknown []string) {
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

func (m *mediaTypes) remember(ids map[string]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids == nil || len(m.ids)+len(ids) > keptMediaTypes {
		m.ids = make(map[string]int64, len(ids))
	}
	maps.Copy(m.ids, ids)
}

// read reads those of a list of names that have ids.
func (m *mediaTypes) read(ctx context.Context, list string, take func(sqldb.Row) error) error {
	rows, err := m.db.Query(ctx, findMediaTypes(m.db.Engine()), list)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := take(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// insert gives ids to those that have none, and reads all of them.
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

// checkMediaType bounds what is kept for good.
func checkMediaType(name string) bool {
	if name == "" || len(name) > maxMediaType {
		return false
	}
	return visible(name)
}

// visible says that a text has none but visible characters of ASCII. All names
// here are so; and not everything else can be asked for: PostgreSQL refuses a
// text that has a zero byte, or is not UTF-8.
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
// without asking it first. Registry clients send bytes as
// application/octet-stream, or say nothing of their type. Of manifests
// parseManifest knows the types.
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
