package preview

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// BenchmarkPreview previews the delete of an owner with 100,000 dependents, counts only,
// and reports the memory that it holds at the end.
func BenchmarkPreview(b *testing.B) {
	const dependents, writers = 100_000, 100
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			w := newWorld(b, dbtest.OpenDB(b, engine), Options{})
			w.Create(thing{Kind: object.Namespaces, Name: "n"})
			root := w.Create(thing{Namespace: "n", Name: "root"})
			owners := w.OwnedBy(root)
			var group sync.WaitGroup
			for i := range writers {
				group.Go(func() {
					for j := range dependents / writers {
						w.Create(thing{Namespace: "n", Name: fmt.Sprintf("d-%d-%d", i, j), Owners: owners})
					}
				})
			}
			group.Wait()
			spec := v1.DeletionPreviewSpec{Object: v1.ObjectReference{UID: root.UID}, CountsOnly: true}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for b.Loop() {
				status, walk, err := w.service.preview(b.Context(), kindtest.Almighty(), spec)
				if err != nil || status.Total != dependents+1 {
					b.Fatalf("got total %d, %v", status.Total, err)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				runtime.KeepAlive(walk)
			}
			b.ReportMetric(float64(after.HeapAlloc)/(1<<20)-float64(before.HeapAlloc)/(1<<20), "MiB-kept")
			b.ReportMetric(float64(dependents)*float64(b.N)/b.Elapsed().Seconds(), "objects/s")
		})
	}
}
