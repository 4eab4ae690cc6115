package store

import (
	"errors"
	"fmt"
	"slices"
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

// BenchmarkExpire lets b.N cascades of one object each leave the archive.
func BenchmarkExpire(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			c := newClock()
			s := run(b, Options{DB: dbtest.OpenDB(b, engine), Archive: ArchiveOptions{For: time.Hour}, Now: c.now}).Store
			createNamespace(b, s, "default")
			createMany(b, s, b.N)
			var all []DeleteRequest
			for i := range b.N {
				all = append(all, DeleteRequest{Key: object.Key{Kind: things, Namespace: "default", Name: fmt.Sprintf("name-%d", i+1)}})
			}
			for step := range slices.Chunk(all, 1000) {
				if _, errs := s.DeleteAll(b.Context(), step); errors.Join(errs...) != nil {
					b.Fatal(errs)
				}
			}
			c.move(2 * time.Hour)
			b.ResetTimer()
			if err := s.expiry.Run(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
