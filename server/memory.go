package server

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// lowerGCPercent lowers GOGC from 100 to 50: less memory for a little more CPU. The
// live heap is small compared to the garbage that requests make. The GOGC
// environment variable, if set, has priority.
func lowerGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// releaseDelay is the delay before start-up memory is released.
const releaseDelay = 2 * time.Second

// releaseStartMemory releases, after releaseDelay, the heap that only the start needed. stop
// cancels this.
func releaseStartMemory() (stop func() bool) {
	return time.AfterFunc(releaseDelay, debug.FreeOSMemory).Stop
}

const (
	// largeHeap is the heap, in bytes, from which freed memory is returned.
	largeHeap = 96 << 20
	// returnEvery and returnRarely are the shortest and the longest time between two
	// returns.
	returnEvery, returnRarely = 10 * time.Second, 4 * time.Minute
)

// returnMemory returns freed memory to the system after a burst of large requests.
// The runtime by itself collects every two minutes when it is idle, and returns freed
// memory over minutes. Each return costs a collection: if one returns less than a
// quarter of the heap, the next comes after twice the time.
func returnMemory(ctx context.Context) error {
	for wait := returnEvery; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		before := residentHeap()
		if before < largeHeap {
			wait = returnEvery
			continue
		}
		debug.FreeOSMemory()
		if wait *= 2; before-residentHeap() >= before/4 {
			wait = returnEvery
		}
		wait = min(wait, returnRarely)
	}
}

// residentHeap is the memory of the heap that is not returned to the system.
func residentHeap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapSys - m.HeapReleased)
}
