//go:build !linux

package server

// releaseImagePages does nothing on systems other than Linux.
func releaseImagePages() error { return nil }
