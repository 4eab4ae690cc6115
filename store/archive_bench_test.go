package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// BenchmarkDeleteArchived is BenchmarkDelete with the archive off and on.
func BenchmarkDeleteArchived(b *testing.B) {
	for _, o := range []ArchiveOptions{{}, {For: time.Hour}} {
		for _, engine := range dbtest.Engines() {
			b.Run(fmt.Sprintf("for=%v/%s", o.For, engine), func(b *testing.B) {
				s := run(b, Options{DB: dbtest.OpenDB(b, engine), Archive: o}).Store
				createNamespace(b, s, "default")
				createMany(b, s, b.N)
				b.ResetTimer()
				before := processorTime(b)
				workers(32, b.N, func(i int) {
					key := object.Key{Kind: things, Namespace: "default", Name: fmt.Sprintf("name-%d", i)}
					if _, err := s.Delete(b.Context(), DeleteRequest{Key: key, Actor: "someone"}); err != nil {
						b.Error(err)
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deletes/s")
				b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
