package gc

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// configMaps are what the benchmarks delete: a kind that is served.
const configMaps = "configmaps"

// shape is a graph below one owner, "root". parent is the place of the parent
// of object i, counted from 1; 0 is the root.
type shape struct {
	name   string
	size   int
	parent func(i int) int
}

var shapes = []shape{
	{"flat10000", 10_000, func(int) int { return 0 }},
	{"chain1000", 1_000, func(i int) int { return i - 1 }},
	{"tree10x5", 111_110, func(i int) int { return (i - 1) / 10 }},
	{"flat100000", 100_000, func(int) int { return 0 }},
}

// BenchmarkCascade is the time from a DELETE until a watcher has the last event
// of its cascade, and how much memory was taken.
//
//	script/postgres go test ./gc -run '^$' -bench . -benchtime 3x
func BenchmarkCascade(b *testing.B) { benchCascades(b, false) }

// BenchmarkMeanwhile is the same while one client reads and another creates. It
// reports their slowest requests.
func BenchmarkMeanwhile(b *testing.B) { benchCascades(b, true) }

func benchCascades(b *testing.B, load bool) {
	for _, s := range shapes {
		for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
			if policy == orphan && !strings.HasPrefix(s.name, "flat") {
				continue // it goes one level down only
			}
			for _, engine := range dbtest.Engines() {
				for archive, keep := range map[string]time.Duration{"archive": time.Hour, "bare": 0} {
					b.Run(fmt.Sprintf("%s/%s/%s/%s", s.name, policy, engine, archive), func(b *testing.B) { benchCascade(b, engine, s, policy, keep, load) })
				}
			}
		}
	}
}

func benchCascade(b *testing.B, engine sqldb.Engine, s shape, policy metav1.DeletionPropagation, keep time.Duration, loaded bool) {
	w := newWorld(b, dbtest.OpenDB(b, engine), Options{})
	w.archiveFor = keep
	w.restart()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.gc.Run(ctx) }()
	load := meanwhile{idle: !loaded}
	var used time.Duration
	for b.Loop() {
		b.StopTimer()
		w.populate(s)
		watcher, err := w.store.Watch(ctx, store.WatchRequest{Kind: configMaps, From: w.store.Revision()})
		if err != nil {
			b.Fatal(err)
		}
		removals := s.size + 1
		if policy == orphan {
			removals = 1
		}
		stop := load.begin(w)
		before := processorTime(b)
		b.StartTimer()
		w.delete(configMaps+":root", policy)
		await(b, watcher, removals)
		b.StopTimer()
		used += processorTime(b) - before
		stop()
		watcher.Close()
		w.empty()
		b.StartTimer()
	}
	b.ReportMetric(float64(s.size*b.N)/b.Elapsed().Seconds(), "objects/s")
	b.ReportMetric(float64(used.Microseconds())/float64(s.size*b.N), "cpu-µs/object")
	if loaded {
		b.ReportMetric(load.gets.p99(), "get-p99-ms")
		b.ReportMetric(load.creates.p99(), "create-p99-ms")
	}
	b.ReportMetric(float64(load.grown)/(1<<20), "MiB")
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}

// processorTime is what this process has used, without PostgreSQL.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// await reads a watch until a number of objects are gone.
func await(b *testing.B, w *store.Watcher, removals int) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for removals > 0 {
		events, _, err := w.Next(ctx)
		if err != nil {
			b.Fatalf("%d are left: %v", removals, err)
		}
		for _, e := range events {
			if e.Type == store.Removed {
				removals--
			}
		}
	}
}

// populate writes the graph straight into the store.
func (w *world) populate(s shape) {
	w.Helper()
	uids := make([]types.UID, s.size+1)
	for i := range uids {
		uids[i] = object.NewUID()
	}
	name := func(i int) string {
		if i == 0 {
			return "root"
		}
		return fmt.Sprintf("object-%06d", i)
	}
	filler := strings.Repeat("x", 600)
	for next := 0; next <= s.size; {
		err := w.store.Transact(context.Background(), func(tx *store.Tx) error {
			for range min(1000, s.size+1-next) {
				m := metav1.ObjectMeta{Name: name(next), Namespace: "n", UID: uids[next], CreationTimestamp: metav1.Unix(1000, 0)}
				if next > 0 {
					yes := true
					m.OwnerReferences = []metav1.OwnerReference{{
						APIVersion: "v1", Kind: "ConfigMap", Name: name(s.parent(next)), UID: uids[s.parent(next)], BlockOwnerDeletion: &yes, Controller: &yes,
					}}
					m.ManagedFields = []metav1.ManagedFieldsEntry{{
						Manager: "kubectl-create", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
						FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{".":{},"f:filler":{}},"f:metadata":{"f:ownerReferences":{}}}`)},
					}}
				}
				body, err := object.WithMeta([]byte(`{"metadata":{"name":"x"},"data":{"filler":"`+filler+`"}}`), m)
				if err != nil {
					return err
				}
				tx.Create(object.Key{Kind: configMaps, Namespace: "n", Name: m.Name}, &m, body)
				next++
			}
			return tx.Flush()
		})
		if err != nil {
			w.Fatal(err)
		}
	}
}

// empty removes all remaining objects.
func (w *world) empty() {
	w.Helper()
	w.exec(`DELETE FROM objects`)
	w.exec(`DELETE FROM gc_object_reviews`)
}

// BenchmarkBareSQL deletes the rows of the flat graph with SQL only: in batches,
// with tombstones and the same triggers. It is the lower bound of a cascade's time.
func BenchmarkBareSQL(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			w := newWorld(b, dbtest.OpenDB(b, engine), Options{})
			for b.Loop() {
				b.StopTimer()
				w.populate(shapes[0])
				b.StartTimer()
				for left := shapes[0].size + 1; left > 0; left -= 500 {
					w.deleteBare(500)
				}
				b.StopTimer()
				w.empty()
				b.StartTimer()
			}
			b.ReportMetric(float64(shapes[0].size*b.N)/b.Elapsed().Seconds(), "objects/s")
		})
	}
}

func (w *world) deleteBare(n int) {
	w.Helper()
	tx, err := w.db.Begin(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	defer tx.Rollback()
	var b sqldb.Batch
	b.Exec(`
INSERT INTO changes (revision, object, uid, kind, namespace, name, type, previous)
SELECT r.current + row_number() OVER (ORDER BY o.id), o.id, o.uid, o.kind, o.namespace, o.name, 3, o.revision
FROM objects o, revision r ORDER BY o.id LIMIT $1`, n)
	b.Exec(`DELETE FROM objects WHERE id IN (SELECT id FROM objects ORDER BY id LIMIT $1)`, n)
	b.Exec(`UPDATE revision SET current = (SELECT max(revision) FROM changes)`)
	if err := tx.Send(context.Background(), &b); err != nil {
		w.Fatal(err)
	}
	if err := tx.Commit(context.Background()); err != nil {
		w.Fatal(err)
	}
}
