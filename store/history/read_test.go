package history

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/exeunt/exeunt/object"
)

// TestParseWhen: a moment is a version from 1 on, or a time that is over with its whole second.
func TestParseWhen(t *testing.T) {
	now := time.Date(2026, 11, 19, 10, 0, 0, 0, time.UTC)
	for when, want := range map[string]struct {
		revision int64
		at       time.Time
	}{
		"1":                         {revision: 1},
		"4711":                      {revision: 4711},
		"2026-11-19T09:59:58Z":      {at: now.Add(-2 * time.Second)},
		"2026-11-19T10:59:58+01:00": {at: now.Add(-2 * time.Second)},
		"0":                         {},
		"-1":                        {},
		"yesterday":                 {},
		"2026-11-19T09:59:59Z":      {}, // its second is not over
		"2026-11-20T00:00:00Z":      {},
	} {
		revision, at, err := ParseWhen(when, now)
		refused := want.revision == 0 && want.at.IsZero()
		if refused != object.Is(err, object.BadRequest) || !refused && (err != nil || revision != want.revision || !at.Equal(want.at)) {
			t.Errorf("%s: %d, %s, %v", when, revision, at, err)
		}
	}
}

// namespaces are the answers to SameNamespace about one of now and of then.
type namespaces struct {
	now, then   object.Object
	lost, error error
}

func (n namespaces) Get(context.Context, object.Key) (object.Object, error) { return n.now, n.lost }

func (n namespaces) GetAt(context.Context, object.Key, int64) (object.Object, error) {
	return n.then, n.error
}

// TestSameNamespace: only a namespace that existed then and is the one of now is the same; what is not known is another.
func TestSameNamespace(t *testing.T) {
	first, second := object.Object{UID: "first"}, object.Object{UID: "second"}
	gone, expired, down := object.Errorf(object.NotFound, "no"), object.Errorf(object.Expired, "no"), errors.New("down")
	for name, c := range map[string]struct {
		of   namespaces
		same bool
		err  error
	}{
		"the same":             {namespaces{now: first, then: first}, true, nil},
		"another one":          {namespaces{now: second, then: first}, false, nil},
		"gone":                 {namespaces{lost: gone, then: first}, false, nil},
		"it did not exist":     {namespaces{now: first, error: gone}, false, nil},
		"neither then nor now": {namespaces{lost: gone, error: gone}, false, nil},
		"not known any more":   {namespaces{now: first, error: expired}, false, nil},
		"cannot be read":       {namespaces{now: first, then: first, error: down}, false, down},
	} {
		same, err := SameNamespace(t.Context(), c.of, "n", 7)
		if !errors.Is(err, c.err) || c.err == nil && same != c.same {
			t.Errorf("%s: %v, %v", name, same, err)
		}
	}
}
