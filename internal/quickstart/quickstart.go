// Package quickstart delays the first garbage collections of a process. A start of the server
// allocates some 30 MB, of which a third stays: collections in between were a seventh of its
// processor time. The initialization of the packages of Kubernetes is a part of it, so this
// package is initialized before them: its path sorts before theirs, and it imports little.
package quickstart

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
)

// Percent is a GOGC with which the first collection is at 4 MB * Percent / 100 = 40 MB.
const Percent = 1000

// Commands have Go's own default: what they do with a large database is not a start.
var _ = (slices.Contains(os.Args, "serve") || filepath.Base(os.Args[0]) == "kube-apiserver") && Set(Percent)

// Set sets GOGC, unless it is in the environment. It reports whether it did.
func Set(percent int) bool {
	own := os.Getenv("GOGC") == ""
	if own {
		debug.SetGCPercent(percent)
	}
	return own
}
