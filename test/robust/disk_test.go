package robust_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// Where the test may mount (as root, in most containers not) each database node has a disk of
// its own, which can be full: a tmpfs, whose size a remount changes. Elsewhere that fault is left
// out, and the report says so.

// diskSize is far more than an hour of the test needs.
const diskSize = 4 << 30

func (c *cluster) mountDisk(i int) {
	c.t.Helper()
	n := &c.nodes[i]
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	err := syscall.Mount("exeunt-robust", n.dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize))
	if errors.Is(err, syscall.EPERM) {
		c.t.Log("no full disks: this process may not mount")
	} else if err != nil {
		c.t.Fatalf("mount a disk for the database: %v", err)
	} else {
		n.disk = n.dir
		c.t.Cleanup(func() { _ = syscall.Unmount(n.disk, syscall.MNT_DETACH) })
	}
	if err := os.Chown(n.dir, int(c.as.Uid), int(c.as.Gid)); err != nil {
		c.t.Fatal(err)
	}
	n.dir = filepath.Join(n.dir, "data")
}

// fill leaves no free page on a node's disk.
func (c *cluster) fill(i int) {
	c.t.Helper()
	// The kernel refuses a size that the node has passed in the meantime.
	harness.Until(c.t, "a full disk", func() error {
		var s syscall.Statfs_t
		if err := syscall.Statfs(c.nodes[i].disk, &s); err != nil {
			return err
		}
		return c.resize(i, int64(s.Blocks-s.Bfree)*s.Bsize)
	})
}

func (c *cluster) resize(i int, size int64) error {
	return syscall.Mount("", c.nodes[i].disk, "", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", size))
}

// empty frees a node's disk, and starts the node if it has ended: PostgreSQL panics when it
// cannot write its log, and its recovery needs space too.
func (c *cluster) empty(i int) {
	c.t.Helper()
	if err := c.resize(i, diskSize); err != nil {
		c.t.Fatal(err)
	}
	harness.Within(c.t, 4*harness.Patience, "both nodes after a full disk", func() error {
		if c.command("pg_ctl", "-D", c.nodes[i].dir, "status").Run() != nil {
			c.panics++
			c.start(i)
		}
		return c.standbyIsSync()
	})
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
