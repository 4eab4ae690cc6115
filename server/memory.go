package server

import (
	"os"
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
