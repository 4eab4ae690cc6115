package server

import (
	"os"
	"runtime/debug"
)

// collectSooner trades a little of the processor for memory: what this server
// keeps is small next to what passes through it, and by default the runtime
// would let garbage grow to as much again. GOGC, if set, decides instead.
func collectSooner() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}
