package oci

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/exeunt/exeunt/test/harness"
	"github.com/exeunt/exeunt/test/leash"
)

const imageUser = 65532

// runImage starts the server of an image with the image's files, user and environment,
// asks the image's health check until it succeeds, and stops the server. It changes the
// root directory in place of a container, which needs no runtime and no rights that a
// build machine may lack.
func (c craneFlow) runImage(pulled v1.Image) {
	root := c.t.TempDir()
	c.check(extract(pulled, root))
	file, err := pulled.ConfigFile()
	c.check(err)
	command := func(out io.Writer, args ...string) *exec.Cmd {
		cmd := exec.Command(file.Config.Entrypoint[0], args...)
		cmd.Dir, cmd.Env, cmd.SysProcAttr = file.Config.WorkingDir, file.Config.Env, leash.Leash()
		cmd.Stdout, cmd.Stderr = out, out
		cmd.SysProcAttr.Chroot = root
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: imageUser, Gid: imageUser, NoSetGroups: os.Getuid() != 0}
		if os.Getuid() != 0 {
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: imageUser, HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: imageUser, HostID: os.Getgid(), Size: 1}}
		}
		return cmd
	}
	var log bytes.Buffer
	// Other ports than the image's: other servers may run on this machine.
	server := command(&log, append(file.Config.Cmd, "--listen", "0.0.0.0:0", "--registry-listen", "0.0.0.0:0")...)
	c.check(server.Start())
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	err = harness.Poll(func() error {
		if out, err := command(nil, "status", "--ready").CombinedOutput(); err != nil {
			return fmt.Errorf("status --ready: %w: %s", err, out)
		}
		return nil
	})
	c.check(server.Process.Signal(syscall.SIGTERM))
	if end := <-ended; err != nil || end != nil {
		c.t.Errorf("the server of the image: %v; it ended with %v:\n%s", err, end, &log)
	}
}

// extract writes the files of an image into a directory, with their modes, and as root with
// their owners.
func extract(pulled v1.Image, root string) error {
	content := mutate.Extract(pulled)
	defer content.Close()
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Join(root, header.Name)
		// The last layer comes first, without the directories of the layers below.
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(header.Linkname, name)
		default:
			err = write(name, archive)
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Lchown(name, header.Uid, header.Gid)
		}
		if err == nil && header.Typeflag != tar.TypeSymlink {
			err = os.Chmod(name, header.FileInfo().Mode())
		}
		if err != nil {
			return err
		}
	}
}

func write(name string, content io.Reader) error {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}
