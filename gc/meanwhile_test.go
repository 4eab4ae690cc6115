package gc

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// meanwhile measures other clients during a cascade.
type meanwhile struct {
	idle          bool // only memory is looked at
	gets, creates durations
	grown         int64 // bytes of resident memory, at most
	made          int
}

type durations []time.Duration

// p99 is in milliseconds; 0 if there are none.
func (d durations) p99() float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return float64(d[len(d)*99/100]) / float64(time.Millisecond)
}

// begin starts a client that reads and one that creates, until stop.
func (m *meanwhile) begin(w *world) (stop func()) {
	debug.FreeOSMemory()
	before := resident()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	repeat := func(pause time.Duration, do func()) {
		group.Go(func() {
			for ctx.Err() == nil {
				do()
				time.Sleep(pause)
			}
		})
	}
	if !m.idle {
		repeat(time.Millisecond, func() { m.gets = append(m.gets, m.get(w)) })
		repeat(time.Millisecond, func() { m.creates = append(m.creates, m.create(w)) })
	}
	repeat(5*time.Millisecond, func() { m.grown = max(m.grown, resident()-before) })
	return func() {
		cancel()
		group.Wait()
	}
}

func (m *meanwhile) get(w *world) time.Duration {
	begin := time.Now()
	_, err := w.store.Get(context.Background(), object.Key{Kind: configMaps, Namespace: "n", Name: "object-000001"})
	if err != nil && !object.Is(err, object.NotFound) {
		w.Error(err)
	}
	return time.Since(begin)
}

func (m *meanwhile) create(w *world) time.Duration {
	m.made++
	meta := metav1.ObjectMeta{Name: fmt.Sprintf("meanwhile-%06d", m.made), Namespace: "other", UID: types.UID(fmt.Sprintf("meanwhile-%06d", m.made))}
	body, err := object.WithMeta([]byte(`{"metadata":{"name":"x"}}`), meta)
	if err != nil {
		w.Error(err)
	}
	begin := time.Now()
	_, err = w.store.Create(context.Background(), store.CreateRequest{Key: object.Key{Kind: things, Namespace: "other", Name: meta.Name}, Meta: meta, Body: body})
	if err != nil {
		w.Error(err)
	}
	return time.Since(begin)
}

// resident returns the resident memory of this process in bytes; 0 if the system does not report it.
func resident() int64 {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kilobytes); err == nil {
			return kilobytes << 10
		}
	}
	return 0
}
