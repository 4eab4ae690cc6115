//go:build clients

package clients

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exeunt/exeunt/test/harness"
	"github.com/exeunt/exeunt/test/leash"
)

func TestScripts(t *testing.T) {
	for _, program := range []string{"helm", "cosign", "skopeo", "podman", "docker", "dockerd", "crane"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: run make long RUN=clients", err)
		}
	}
	for _, engine := range []string{harness.SQLite, harness.Postgres} {
		t.Run(engine, func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Dir:                 "testdata",
				RequireExplicitExec: true,
				Setup:               func(env *testscript.Env) error { return setup(env, engine) },
				Cmds:                map[string]func(*testscript.TestScript, bool, []string){"engine": dockerEngine},
			})
		})
	}
}

func setup(env *testscript.Env, engine string) error {
	t, ok := env.T().(testing.TB)
	if !ok {
		return errors.New("the script's T is no testing.TB")
	}
	s := harness.Start(t, engine)
	at := s.Registry() + "/shop"
	img, err := image()
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	env.Setenv("AT", at)
	env.Setenv("HOST", s.Registry())
	if err := os.WriteFile(filepath.Join(env.WorkDir, "token"), []byte(s.RegistryToken()), 0o600); err != nil {
		return err
	}
	env.Setenv("DIGEST", digest.String())
	env.Setenv("HOME", env.WorkDir)
	env.Setenv("DOCKER_CONFIG", os.Getenv("DOCKER_CONFIG"))
	env.Setenv("TMPDIR", env.WorkDir)
	if err := podmanStorage(env); err != nil {
		return err
	}
	return crane.Push(img, at+"/app:v1")
}

// image makes an image for the platform of this machine, so that every client accepts it.
func image() (v1.Image, error) {
	layer, err := random.Layer(16<<10, types.OCILayer)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{OS: runtime.GOOS, Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layer)
}

// podmanStorage configures podman to store images in the script's directory, with a driver
// that needs no kernel support.
func podmanStorage(env *testscript.Env) error {
	env.Setenv("XDG_RUNTIME_DIR", env.WorkDir)
	config := filepath.Join(env.WorkDir, "storage.conf")
	env.Setenv("CONTAINERS_STORAGE_CONF", config)
	return os.WriteFile(config, fmt.Appendf(nil, "[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n",
		filepath.Join(env.WorkDir, "podman"), filepath.Join(env.WorkDir, "podman-run")), 0o600)
}

// dockerEngine starts a Docker daemon with its own directories for the duration of a
// script. It needs root.
func dockerEngine(ts *testscript.TestScript, _ bool, _ []string) {
	in := func(name string) string { return ts.MkAbs("docker-engine/" + name) }
	ts.Check(os.MkdirAll(in(""), 0o700))
	address := "unix://" + in("socket")
	cmd := exec.Command("dockerd", "--host", address, "--data-root", in("data"), "--exec-root", in("exec"), "--pidfile", in("pid"),
		"--storage-driver", "vfs", "--iptables=false", "--bridge=none")
	log, err := os.Create(in("log"))
	ts.Check(err)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = leash.Leash()
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it ends its containerd too
		_ = cmd.Wait()
		_ = log.Close()
	})
	ts.Setenv("DOCKER_HOST", address)
	err = harness.Poll(func() error { return ts.Exec("docker", "version") })
	if err != nil {
		ts.Fatalf("the engine does not answer: %v\n%s", err, ts.ReadFile(in("log")))
	}
}
