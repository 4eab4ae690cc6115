package robust_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// Where the test may mount (as root, in most containers not) each database node and the S3 server
// have a disk of their own, which can be full: a tmpfs, whose size a remount changes. Elsewhere those
// faults are left out, and the report says so.

// diskSize is far more than an hour of the test needs.
const diskSize = 4 << 30

// disk is a mount point; empty if there is no disk.
type disk string

// mountDisk mounts a disk at a new directory.
func mountDisk(t testing.TB, dir string) disk {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := syscall.Mount("exeunt-robust", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize))
	if errors.Is(err, syscall.EPERM) {
		t.Logf("no full disk %s: this process may not mount", filepath.Base(dir))
		return ""
	}
	if err != nil {
		t.Fatalf("mount a disk: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return disk(dir)
}

// fill leaves no free page.
func (d disk) fill(t testing.TB) {
	t.Helper()
	// The kernel refuses a size that has been passed in the meantime.
	harness.Until(t, "a full disk", func() error {
		var s syscall.Statfs_t
		if err := syscall.Statfs(string(d), &s); err != nil {
			return err
		}
		return d.resize(int64(s.Blocks-s.Bfree) * s.Bsize)
	})
}

// empty undoes fill.
func (d disk) empty(t testing.TB) {
	t.Helper()
	if err := d.resize(diskSize); err != nil {
		t.Fatal(err)
	}
}

func (d disk) resize(size int64) error {
	return syscall.Mount("", string(d), "", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", size))
}

func (c *cluster) mountDisk(i int) {
	c.t.Helper()
	n := &c.nodes[i]
	n.disk = mountDisk(c.t, n.dir)
	if err := os.Chown(n.dir, int(c.as.Uid), int(c.as.Gid)); err != nil {
		c.t.Fatal(err)
	}
	n.dir = filepath.Join(n.dir, "data")
}

// empty frees a node's disk, and starts the node if it has ended: PostgreSQL panics when it
// cannot write its log, and its recovery needs space too.
func (c *cluster) empty(i int) {
	c.t.Helper()
	c.nodes[i].disk.empty(c.t)
	harness.Within(c.t, 4*harness.Patience, "both nodes after a full disk", func() error {
		if c.command("pg_ctl", "-D", c.nodes[i].dir, "status").Run() != nil {
			c.panics++
			c.start(i)
		}
		return c.standbyIsSync()
	})
}

// mountBucket gives the S3 server a disk. It keeps what it knows of an object in extended
// attributes, which a tmpfs of an old kernel does not have.
func (w *world) mountBucket() {
	w.Helper()
	at := filepath.Join(w.TempDir(), "bucket")
	d := mountDisk(w, at)
	if d != "" && syscall.Setxattr(at, "user.exeunt", []byte("x"), 0) != nil {
		w.Log("no full disk of the bucket: this kernel's tmpfs has no extended attributes")
		return
	}
	if w.bucketDisk = d; d != "" {
		w.Setenv("EXEUNT_TEST_S3_DIR", at)
	}
}

// slowDisk makes each sync of the primary's log take longer: PostgreSQL sleeps just before it,
// with the lock of its log held.
func (c *cluster) slowDisk(by time.Duration) {
	c.t.Helper()
	c.alter("fsync = on", "commit_siblings = 0", fmt.Sprintf("commit_delay = %d", by.Microseconds()))
}

func (c *cluster) fastDisk() {
	c.t.Helper()
	c.alter("commit_delay = 0", "fsync = off")
}
