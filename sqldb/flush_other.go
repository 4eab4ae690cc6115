//go:build !linux

package sqldb

import "os"

// syncData is as in flush_linux.go.
func syncData(f *os.File) error { return f.Sync() }
