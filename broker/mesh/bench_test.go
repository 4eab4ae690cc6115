package mesh

import (
	"testing"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// BenchmarkHeartbeat measures an idle mesh: heartbeats of 100 nodes, concurrently.
func BenchmarkHeartbeat(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			w := newWorld(b, engine)
			nodes := make([]Node, 100)
			for i := range nodes {
				n := w.insert(i, nil)
				nodes[i] = Node{UID: n.uid, Project: n.project, Name: n.name}
			}
			b.SetParallelism(8)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, err := w.mesh.Heartbeat(b.Context(), nodes[i%len(nodes)]); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkEnrol measures an enrolment.
func BenchmarkEnrol(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			w := newWorld(b, engine)
			for b.Loop() {
				b.StopTimer()
				token := w.mint()
				b.StartTimer()
				w.enrolBy(token, token.ID)
			}
		})
	}
}
