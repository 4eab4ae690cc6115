package store

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestEveryListenerIsCalled: a later OnChange does not replace an earlier one. A
// write is answered after its listeners ran, so the test does not wait.
func TestEveryListenerIsCalled(t *testing.T) {
	s, err := Open(t.Context(), Options{DB: dbtest.OpenDB(t, sqldb.SQLite)})
	if err != nil {
		t.Fatal(err)
	}
	var calls [2]atomic.Int64
	for i := range calls {
		s.OnChange(func(events []*Event) { calls[i].Add(int64(len(events))) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	create(t, s, newRequest("", "a"))
	cancel()
	if err := errors.Join(<-ended, s.Close()); err != nil {
		t.Error(err)
	}
	for i := range calls {
		if calls[i].Load() == 0 {
			t.Errorf("listener %d was not called", i)
		}
	}
}
