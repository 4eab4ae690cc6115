// Package lockfile locks files against other processes, on Unix and on Windows. The
// kernel releases a lock when its process ends, however it ends. It does not create,
// remove or name the files.
package lockfile
