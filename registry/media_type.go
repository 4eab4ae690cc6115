package registry

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"strings"
	"sync"

	"github.com/exeunt/exeunt/sqldb"
)

const (
	// maxMediaType is more than RFC 6838 allows for type and subtype.
	maxMediaType = 255
	// keptMediaTypes bounds the cache; clients make types up.
	keptMediaTypes = 1000
)

// mediaTypes finds the ids of media types. Rows are never changed or removed,
// so what was read once stays true.
type mediaTypes struct {
	db *sqldb.DB

	mu  sync.Mutex
	ids map[string]int64 // guarded by mu
}

// id finds the id of a media type, and gives one to a type that has none. It
// runs in a transaction of its own: an id may be remembered only once it is
// committed.
func (m *mediaTypes) id(ctx context.Context, w *writer, name string) (int64, error) {
	m.mu.Lock()
	id, ok := m.ids[name]
	m.mu.Unlock()
	if ok {
		return id, nil
	}
	found, err := m.db.Row(ctx, findMediaType, []any{name}, &id)
	if err == nil && !found {
		err = w.do(ctx, func(tx *sqldb.Tx) error {
			if err := exec(ctx, tx, insertMediaType, name); err != nil {
				return err
			}
			found, err = one(ctx, tx, findMediaType, []any{name}, &id)
			if err == nil && !found {
				err = errors.New("it is not there after the insert")
			}
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("find media type %s: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids == nil || len(m.ids) >= keptMediaTypes {
		m.ids = map[string]int64{}
	}
	m.ids[name] = id
	return id, nil
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
