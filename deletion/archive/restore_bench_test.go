package archive

import (
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
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
			status, err := a.Restore(b.Context(), kind.ServerClient(), v1.RestoreSpec{Cascade: string(root.UID)})
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
