//go:build unix

package server

import "syscall"

// disk returns the size of the file system that holds dir, and what of it is free for
// this process.
func disk(dir string) (size, free int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	block := int64(s.Bsize) //nolint:unconvert // a uint32 on darwin
	return int64(s.Blocks) * block, int64(s.Bavail) * block, nil
}
