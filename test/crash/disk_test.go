//go:build linux

package crash_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/exeunt/exeunt/test/harness"
)

// TestFullDisk: on a disk without a free byte a server goes on deleting, also after it was killed: objects leave, finalizers are
// removed, the archive is purged. What grows is refused with a reason, and works again when there is space.
func TestFullDisk(t *testing.T) {
	const size = 128 << 20
	if _, err := harness.PluginDir(); err != nil { // builds the server, which needs a larger disk
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "disk-") // t.TempDir is taken from it below
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", size)); errors.Is(err, syscall.EPERM) {
		t.Skip("this user may not mount a small disk")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("GOTMPDIR", dir) // t.TempDir makes the folders of the server there
	d := &fullDisk{t: t, s: harness.Start(t, harness.SQLite, "--disk-reserve-bytes=1000000000"), dir: dir}

	for i := range 20 {
		d.want(http.StatusCreated, "POST", "", fmt.Sprintf(`{"metadata":{"name":"c-%d","finalizers":["x.dev/wait"]},"data":{"text":"%s"}}`, i, strings.Repeat("x", 300_000)))
	}
	d.fill()
	d.awaitFull()
	d.refused("POST", "", `{"metadata":{"name":"small"}}`)
	d.refused("PATCH", "/c-0", `{"data":{"more":"text"}}`)
	if answer := d.push(); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a push is answered with %s", answer.Status)
	}
	d.remove("c-0")

	d.s.Kill() // and nothing is known but the free space
	d.s.Start()
	d.awaitFull()
	for i := 1; i < 20; i++ {
		d.remove(fmt.Sprintf("c-%d", i))
	}
	for _, command := range [][]string{{"archive", "purge", "--all"}, {"archive", "list"}} {
		if r := d.s.Exeunt(t, command...); r.Code != 0 {
			t.Errorf("exeunt %s: %s%s", strings.Join(command, " "), r.Stdout, r.Stderr)
		}
	}
	if r := d.s.Exeunt(t, "status"); r.Code != 1 || !strings.Contains(r.Stdout, "PROBLEM     the disk is full") {
		t.Errorf("exeunt status: %s%s", r.Stdout, r.Stderr)
	}
	d.refused("POST", "", `{"metadata":{"name":"small"}}`)

	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "space", func() error {
		if answer := d.ask("POST", "", `{"metadata":{"name":"small"}}`); answer.Code != http.StatusCreated {
			return fmt.Errorf("%d %s", answer.Code, answer.Body)
		}
		return nil
	})
	d.fill() // the reserve is there again
	d.awaitFull()
	d.want(http.StatusOK, "DELETE", "/small", "")

	d.s.Kill()
	d.fill() // what the reserve has left
	if said := harness.RefusedIn(t, d.s); !strings.Contains(said, "free 8 MiB there") && !strings.Contains(said, "free 9 MiB there") {
		t.Errorf("a start without a byte says:\n%s", said)
	}
}

type fullDisk struct {
	t   *testing.T
	s   *harness.Server
	dir string
}

// fill takes all space, as another program does.
func (d *fullDisk) fill() {
	d.t.Helper()
	f, err := os.OpenFile(filepath.Join(d.dir, "filler"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatal(err)
	}
}

func (d *fullDisk) ask(method, path, body string) harness.Answer {
	d.t.Helper()
	q := harness.Request{Method: method, Path: "/api/v1/namespaces/default/configmaps" + path, Body: body}
	if method == "PATCH" {
		q.ContentType = "application/merge-patch+json"
	}
	return d.s.HTTP().Do(d.t, q)
}

func (d *fullDisk) want(code int, method, path, body string) {
	d.t.Helper()
	if answer := d.ask(method, path, body); answer.Code != code {
		d.t.Fatalf("%s %s: %d %.300s", method, path, answer.Code, answer.Body)
	}
}

func (d *fullDisk) refused(method, path, body string) {
	d.t.Helper()
	if answer := d.ask(method, path, body); answer.Code != http.StatusInsufficientStorage || !strings.Contains(string(answer.Body), "only what gives space back") {
		d.t.Errorf("%s %s: %d %.300s", method, path, answer.Code, answer.Body)
	}
}

// awaitFull waits until the server has given up its reserve.
func (d *fullDisk) awaitFull() {
	d.t.Helper()
	harness.Until(d.t, "the reserve to go", func() error {
		answer := d.ask("POST", "", `{"metadata":{"name":"probe"}}`)
		if answer.Code == http.StatusCreated {
			d.want(http.StatusOK, "DELETE", "/probe", "")
		}
		if !strings.Contains(string(answer.Body), "only what gives space back") {
			return fmt.Errorf("%d %s", answer.Code, answer.Body)
		}
		return nil
	})
}

// remove deletes an object, and then its finalizer, which makes it longer: managedFields names who did it.
func (d *fullDisk) remove(name string) {
	d.t.Helper()
	d.want(http.StatusOK, "DELETE", "/"+name, "")
	d.want(http.StatusOK, "PATCH", "/"+name, `{"metadata":{"finalizers":null}}`)
	d.want(http.StatusNotFound, "GET", "/"+name, "")
}

// push begins an upload.
func (d *fullDisk) push() *http.Response {
	d.t.Helper()
	req, err := http.NewRequest("POST", "http://"+d.s.Registry()+"/v2/shop/web/blobs/uploads/", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", d.s.RegistryAuthorization())
	answer, err := d.s.RegistryHTTP().Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	answer.Body.Close()
	return answer
}
