//go:build !linux

package sqldb

import "os"

// syncData syncs a file. See flush_linux.go.
func syncData(f *os.File) error { return f.Sync() }
