package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

// TestWakeOn: changes of objects of the kind wake, those of another kind do not, and the end of the
// context ends it.
func TestWakeOn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		st := storetest.Run(t, store.Options{DB: db})
		ctx, cancel := context.WithCancel(t.Context())
		woken, others := make(chan struct{}, 1000), make(chan struct{}, 1000)
		var running sync.WaitGroup
		for kind, wakes := range map[string]chan struct{}{"configmaps": woken, "secrets": others} {
			running.Go(func() { st.WakeOn(ctx, kind, func() { wakes <- struct{}{} }) })
		}
		for i := 0; len(woken) == 0; i++ { // the first may come before the watch
			if i == 900 {
				t.Fatal("no change wakes")
			}
			key := object.Key{Kind: "configmaps", Namespace: "n", Name: fmt.Sprint("c", i)}
			storetest.Create(t, st, storetest.Object(t, key, ""))
			time.Sleep(10 * time.Millisecond)
		}
		if len(others) > 0 {
			t.Error("a ConfigMap wakes what waits for Secrets")
		}
		cancel()
		running.Wait()
	})
}
