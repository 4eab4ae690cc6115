// Package quickstart delays the first garbage collections of a process. A start of the server
// allocates some 30 MB, of which a third stays: collections in between were a seventh of its
// processor time. The initialization of the packages of Kubernetes is a part of it, so this
// package is initialized before them: its path sorts before theirs, and it imports little.
package quickstart

import (
	"os"
	"runtime/debug"
)

// Percent is a GOGC with which the first collection is at 4 MB * Percent / 100 = 40 MB.
const Percent = 1000

var _ = setPercent(Percent)

// Set sets GOGC, unless it is in the environment.
func Set(percent int) { setPercent(percent) }

func setPercent(percent int) bool {
	if os.Getenv("GOGC") != "" {
		return false
	}
	debug.SetGCPercent(percent)
	return true
}
