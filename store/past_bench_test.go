package store

import (
	"flag"
	"fmt"
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

var pastObjects = flag.Int("past-objects", 2000, "how many objects BenchmarkPast has")

// BenchmarkPast reads the past of objects with 20 versions each, and today's state beside it. It reports how large the
// history is in percent of full copies.
func BenchmarkPast(b *testing.B) {
	const versions = 20
	objects := *pastObjects
	for _, engine := range dbtest.Engines() {
		s := run(b, Options{DB: dbtest.OpenDB(b, engine), CompactEvery: time.Hour, CacheBytes: 1, History: HistoryOptions{For: time.Hour}}).Store
		createNamespace(b, s, "default")
		full, middle := 0, int64(0)
		all := make([]object.Object, objects)
		for i := range all {
			all[i] = create(b, s, newRequest("default", fmt.Sprintf("name-%d", i)))
		}
		for v := range versions {
			ctx := WithAuthor(b.Context(), Author{User: "system:serviceaccount:kube-system:deployment-controller", Client: "kube-controller-manager/v1.37", Verb: "update status", RequestID: fmt.Sprint("0f43a1de-", v)})
			workers(32, objects, func(n int) {
				i := n - 1
				m, err := object.ParseMeta(all[i].Body)
				if err != nil {
					b.Error(err)
				}
				body := bodyLike(m, i, v)
				if all[i], err = s.Update(ctx, UpdateRequest{Key: all[i].Key, IfRevision: all[i].Revision, Meta: m, Body: body}); err != nil {
					b.Error(err)
				}
			})
			for i := range all {
				full += len(all[i].Body)
			}
			if v == versions/2 {
				middle = s.Revision()
			}
			if v%5 == 4 {
				begin, cpu := time.Now(), processorTime(b)
				if err := s.compact(b.Context(), s.Revision()); err != nil {
					b.Fatal(err)
				}
				b.Logf("%s: moved %d versions, %v of the processor each, in %v", engine, 5*objects, (processorTime(b)-cpu)/time.Duration(5*objects), time.Since(begin))
			}
		}
		if err := s.past.Expire(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.Logf("%s: %.1f %% of full copies of %d bytes", engine, 100*float64(s.past.Bytes())/float64(full), len(all[0].Body))
		each := func(name string, do func(i int) error) {
			b.Run(fmt.Sprint(name, "/", engine), func(b *testing.B) {
				before := processorTime(b)
				for i := 0; b.Loop(); i++ {
					if err := do(i); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
		key := func(i int) object.Key { return all[i*7919%objects].Key }
		each("get-now", func(i int) error { _, err := s.read(b.Context(), key(i)); return err })
		each("get-then", func(i int) error { _, err := s.GetAt(b.Context(), key(i), middle); return err })
		each("versions", func(i int) error {
			n := 0
			err := s.Versions(b.Context(), key(i), math.MaxInt64, func(string, Version) bool { n++; return true })
			if n != versions+1 {
				return fmt.Errorf("%d versions", n)
			}
			return err
		})
		count := func(r ListRequest) error {
			l, err := s.List(b.Context(), r)
			if err != nil {
				return err
			}
			n := 0
			for l.Next() {
				n++
			}
			if n != objects {
				return fmt.Errorf("%d objects: %w", n, l.Err())
			}
			return nil
		}
		each("list-now", func(int) error { return count(ListRequest{Kind: things}) })
		each("list-then", func(int) error { return count(ListRequest{Kind: things, Revision: middle, Past: true}) })
	}
}

// bodyLike is a body as a controller writes it: long, with a few fields that change.
func bodyLike(m metav1.ObjectMeta, i, v int) []byte {
	text := ""
	for field := range 40 {
		text += fmt.Sprintf("f:field-%d-%d:{.:{},f:lastTransitionTime:{},f:status:{}},", field, field*i%97)
	}
	return bodyOf(m, fmt.Sprintf("%s time-%d restart-%d id-%x", text, v*37, v/3, uint64(i*1_000_003+v*7_777_777)*2654435761))
}
