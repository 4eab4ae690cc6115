package server

import (
	"log/slog"
	"os"
	"runtime/debug"
	"time"
)

// collectSooner trades a little of the processor for memory: what this server
// keeps is small next to what passes through it, and by default the runtime
// would let garbage grow to as much again. GOGC, if set, decides instead.
func collectSooner() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// startOver is when the start is over.
const startOver = 2 * time.Second

// forgetStart gives back, when the start is over, the memory that only it
// needed. The returned function calls it off.
func forgetStart(log *slog.Logger) (stop func() bool) {
	return time.AfterFunc(startOver, func() {
		if err := forgetImage(); err != nil {
			log.Debug("memory of the start is not given back", "error", err)
		}
		debug.FreeOSMemory()
	}).Stop
}
