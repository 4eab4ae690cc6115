package archive

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/graph"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// BenchmarkRestore restores a cascade of b.N dependents of one owner:
//
//	go test ./deletion/archive -run '^$' -bench Restore -benchtime 100000x
func BenchmarkRestore(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			db := dbtest.OpenDB(b, engine)
			w := deletiontest.NewWith(b, store.Options{DB: db, Archive: store.ArchiveOptions{For: time.Hour}}, gc.Options{Budget: 500, OrphanWait: -1})
			a, err := New(db, w.Store, w.Kinds, Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			root := fill(b, w, b.N)
			if _, err := w.Store.Delete(b.Context(), store.DeleteRequest{Key: root.Key, Options: deletiontest.With(metav1.DeletePropagationBackground), Actor: "alice"}); err != nil {
				b.Fatal(err)
			}
			w.Collect()
			b.ResetTimer()
			before := processorTime(b)
			status, err := a.Restore(b.Context(), kindtest.Almighty(), v1.RestoreSpec{Cascade: string(root.UID)})
			if err != nil || status.Created != b.N+1 {
				b.Fatalf("%d of %d created, %d failed: %v", status.Created, b.N+1, status.Failed, err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "objects/s")
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

// fill creates an owner and its dependents.
func fill(b *testing.B, w *deletiontest.World, n int) object.Object {
	w.Create(deletiontest.Thing{Kind: object.Namespaces, Name: "n"})
	root := w.Create(deletiontest.Thing{Namespace: "n", Name: "root"})
	owners := w.OwnedBy(root)
	next := make(chan int)
	var working sync.WaitGroup
	for range 64 {
		working.Go(func() {
			for i := range next {
				w.Create(deletiontest.Thing{Namespace: "n", Name: fmt.Sprintf("dependent-%d", i), Owners: owners, Rest: `,"data":{"key":"value"}`})
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	working.Wait()
	return root
}

// processorTime is the CPU time that this process has used; PostgreSQL's is not in it.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCallBack calls back a cascade of b.N dependents when half of it is gone, while the
// collector goes on:
//
//	go test ./deletion/archive -run '^$' -bench CallBack -benchtime 100000x
func BenchmarkCallBack(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			db := dbtest.OpenDB(b, engine)
			w := deletiontest.NewWith(b, store.Options{DB: db, Archive: store.ArchiveOptions{For: time.Hour}}, gc.Options{Budget: 500, OrphanWait: -1})
			a, err := New(db, w.Store, w.Kinds, Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			root := fill(b, w, b.N)
			if _, err := w.Store.Delete(b.Context(), store.DeleteRequest{Key: root.Key, Options: deletiontest.With(metav1.DeletePropagationBackground), Actor: "alice"}); err != nil {
				b.Fatal(err)
			}
			for left := int64(b.N); left > int64(b.N/2); {
				if _, err = w.Collector.RunOne(b.Context()); err == nil {
					left, err = graph.CountDependents(b.Context(), w.Store.Reader(), root.UID, left)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(b.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = w.Collector.Run(ctx) })
			running.Go(func() { _ = a.Run(ctx, func(context.Context, user.Info) kind.Client { return asUser("alice") }) })
			defer running.Wait()
			defer cancel()
			b.ResetTimer()
			r, err := a.submit(b.Context(), asUser("alice"), &v1.Restore{Spec: v1.RestoreSpec{Cascade: string(root.UID)}})
			for err == nil && !r.Status.Phase.Ended() {
				r, err = a.await(b.Context(), &request{name: r.Name})
			}
			if err != nil || r.Status.Phase != v1.Complete {
				b.Fatalf("%+v, %v", r, err)
			}
			b.StopTimer()
			if left, err := graph.CountDependents(b.Context(), w.Store.Reader(), root.UID, int64(b.N)+1); err != nil || left != int64(b.N) {
				b.Fatalf("%d of %d: %v", left, b.N, err)
			}
			b.ReportMetric(float64(r.Status.Created)/b.Elapsed().Seconds(), "restored/s")
			b.ReportMetric(float64(r.Status.Created), "restored")
		})
	}
}
