package server

import (
	"context"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"

	"github.com/exeunt/exeunt/internal/quickstart"
	"github.com/exeunt/exeunt/internal/task"
)

// A server that collects more often than busyCollections times a second makes garbage of busyRoom bytes between two
// collections. With servingGCPercent they would take an eighth of the CPU time of its writes.
const busyCollections, busyRoom = 2, 64 << 20

// calmSeconds without a collection show that a server has nothing to do.
const calmSeconds = 10

// paceCollections sets GOGC by the collections of each second, until ctx ends. It gives the room back when the server has
// nothing to do.
func paceCollections(ctx context.Context) {
	made := []runtimemetrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	runtimemetrics.Read(made)
	percent, before, quiet := servingGCPercent, made[0].Value.Uint64(), 0
	for task.Sleep(ctx, time.Second) {
		runtimemetrics.Read(made)
		collections := made[0].Value.Uint64() - before
		before += collections
		if quiet++; collections > 0 {
			quiet = 0
		} else if quiet < calmSeconds {
			continue // with so much room a busy server has such seconds too, and would only fill the room again
		}
		next := nextGCPercent(percent, collections, made[1].Value.Uint64())
		if next == percent {
			continue
		}
		percent = next
		quickstart.Set(percent)
		if percent == servingGCPercent {
			debug.FreeOSMemory()
		}
	}
}

// nextGCPercent is GOGC after a second with this many collections, the last of which left a heap of live bytes. After a few
// it stays: it would otherwise change every second.
func nextGCPercent(percent int, collections, live uint64) int {
	if collections > busyCollections {
		return max(servingGCPercent, int(busyRoom*100/max(live, 1)))
	}
	if collections == 0 {
		return servingGCPercent
	}
	return percent
}
