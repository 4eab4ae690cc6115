package store

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// eachEngine runs a benchmark with a running store on each engine.
func eachEngine(b *testing.B, bench func(b *testing.B, s *Store)) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) { bench(b, openBench(b, engine)) })
	}
}

func openBench(b *testing.B, engine sqldb.Engine) *Store {
	b.Helper()
	s := run(b, Options{DB: dbtest.OpenDB(b, engine)})
	createNamespace(b, s.Store, "default")
	return s.Store
}

// processorTime returns the CPU time of this process: on a busy machine it says more
// than the wall clock.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

var filler = strings.Repeat("x", 850)

// kilobyte is a create with a body of about 1 KiB.
func kilobyte(name string) CreateRequest {
	r := newRequest("default", name)
	r.Body = bodyOf(r.Meta, filler)
	r.InNamespace = true
	return r
}

// workers calls fn for each i below n from many goroutines.
func workers(count, n int, fn func(i int)) {
	var next atomic.Int64
	var running sync.WaitGroup
	for range count {
		running.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				fn(i)
			}
		})
	}
	running.Wait()
}

func BenchmarkCreate(b *testing.B) {
	for _, callers := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			eachEngine(b, func(b *testing.B, s *Store) {
				requests := make([]CreateRequest, b.N+1)
				for i := range requests {
					requests[i] = kilobyte(fmt.Sprintf("name-%d", i))
				}
				b.ReportAllocs()
				b.ResetTimer()
				before := processorTime(b)
				workers(callers, b.N, func(i int) {
					if _, err := s.Create(b.Context(), requests[i]); err != nil {
						b.Error(err)
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
				b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	eachEngine(b, func(b *testing.B, s *Store) {
		const callers = 32
		objects := make([]object.Object, callers)
		for i := range objects {
			objects[i] = create(b, s, kilobyte(fmt.Sprintf("name-%d", i)))
		}
		b.ResetTimer()
		var running sync.WaitGroup
		for i := range objects {
			running.Go(func() {
				for n := range b.N / callers {
					objects[i] = change(b, s, objects[i], fmt.Sprintf("%s%d", filler, n))
				}
			})
		}
		running.Wait()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
	})
}

func BenchmarkDelete(b *testing.B) {
	eachEngine(b, func(b *testing.B, s *Store) {
		workers(256, b.N, func(i int) {
			if _, err := s.Create(b.Context(), kilobyte(fmt.Sprintf("name-%d", i))); err != nil {
				b.Error(err)
			}
		})
		b.ResetTimer()
		workers(32, b.N, func(i int) {
			key := object.Key{Kind: things, Namespace: "default", Name: fmt.Sprintf("name-%d", i)}
			if _, err := s.Delete(b.Context(), DeleteRequest{Key: key}); err != nil {
				b.Error(err)
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deletes/s")
	})
}

func createMany(b *testing.B, s *Store, n int) {
	b.Helper()
	workers(64, n, func(i int) {
		if _, err := s.Create(b.Context(), kilobyte(fmt.Sprintf("name-%d", i))); err != nil {
			b.Error(err)
		}
	})
}

func BenchmarkGet(b *testing.B) {
	eachEngine(b, func(b *testing.B, s *Store) {
		createMany(b, s, 1000)
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			key := object.Key{Kind: things, Namespace: "default", Name: fmt.Sprintf("name-%d", i%1000+1)}
			if _, err := s.Get(b.Context(), key); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkList10000(b *testing.B) {
	eachEngine(b, func(b *testing.B, s *Store) {
		createMany(b, s, 10_000)
		past := s.Revision()
		for i := range 1000 {
			remove(b, s, object.Key{Kind: things, Namespace: "default", Name: fmt.Sprintf("name-%d", i+1)})
		}
		createMany(b, s, 1000)
		for name, revision := range map[string]int64{"now": 0, "past": past} {
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					listBytes(b, s, revision)
				}
			})
		}
	})
}

func listBytes(b *testing.B, s *Store, revision int64) {
	b.Helper()
	l, err := s.List(b.Context(), ListRequest{Kind: things, Namespace: "default", Revision: revision})
	if err != nil {
		b.Fatal(err)
	}
	count, size := 0, 0
	for l.Next() {
		count++
		size += len(l.Object().Body)
	}
	if l.Err() != nil || count != 10_000 {
		b.Fatal(count, l.Err())
	}
	b.SetBytes(int64(size))
}

// BenchmarkWatchFanOut is one create seen by every watcher, which encode it
// once between them.
func BenchmarkWatchFanOut(b *testing.B) {
	for _, watchers := range []int{100, 1000} {
		b.Run(fmt.Sprintf("watchers=%d", watchers), func(b *testing.B) {
			s := openBench(b, sqldb.SQLite)
			from := s.Revision()
			var running sync.WaitGroup
			for range watchers {
				w := watch(b, s, WatchRequest{From: from})
				running.Go(func() { consume(b, w, b.N) })
			}
			b.ResetTimer()
			createMany(b, s, b.N)
			running.Wait()
			b.ReportMetric(float64(b.N*watchers)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func consume(b *testing.B, w *Watcher, n int) {
	for seen := 0; seen < n; {
		events, _, err := w.Next(b.Context())
		if err != nil {
			b.Error(err)
			return
		}
		for _, e := range events {
			e.Cached("wire", func() []byte { return bytes.Clone(e.Object.Body) })
		}
		seen += len(events)
	}
}
