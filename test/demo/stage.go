package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/crane"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exeunt/exeunt/test/leash"
)

// reviewSoon makes the registry review one second after an event. Uploads have more time:
// their manifest has yet to arrive.
const reviewSoon = "blob_upload=10s,manifest_upload=10s,manifest_delete=1s,manifest_list_delete=1s,layer_delete=1s,tag_delete=1s," +
	"tag_switch=1s,existence_check=1s,blob_delete=0s,upload_delete=0s"

// stage is a server with its clients and the processes around it.
type stage struct {
	Config
	*printer

	registry   string // HOST:PORT
	login      crane.Option
	kubeconfig string
	rest       *rest.Config
	objects    dynamic.Interface
	kube       kubernetes.Interface

	running sync.WaitGroup
	stop    context.CancelFunc // ends everything that runs

	mu       sync.Mutex
	failures []error // of parts that ended too early; guarded by mu
}

// openStage starts a server and makes the clients.
func openStage(ctx context.Context, c Config, t *printer) (*stage, context.Context, error) {
	ctx, stop := context.WithCancel(ctx)
	s := &stage{Config: c, printer: t, stop: stop, kubeconfig: filepath.Join(c.Dir, "kubeconfig")}
	if err := s.open(ctx); err != nil {
		return nil, nil, errors.Join(err, s.close())
	}
	return s, ctx, nil
}

func (s *stage) open(ctx context.Context) error {
	data := filepath.Join(s.Dir, "data")
	if err := s.serve(ctx, data); err != nil {
		return err
	}
	// A copy of the kubeconfig, in which the demo sets the namespace.
	text, err := os.ReadFile(filepath.Join(data, "kubeconfig"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.kubeconfig, text, 0o600); err != nil {
		return err
	}
	if s.rest, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig); err != nil {
		return err
	}
	s.rest.QPS, s.rest.WarningHandler = -1, rest.NoWarnings{}
	if s.objects, err = dynamic.NewForConfig(s.rest); err != nil {
		return err
	}
	s.kube, err = kubernetes.NewForConfig(s.rest)
	return err
}

// serve starts the server and returns when it is ready.
func (s *stage) serve(ctx context.Context, data string) error {
	args := []string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--registry-listen", "127.0.0.1:0",
		"--mesh-heartbeat", "1s", "--registry-review-after", reviewSoon, "--log-level", "WARN"}
	if s.Database != "" {
		args = append(args, "--database", s.Database)
	}
	out, in := io.Pipe()
	cmd := s.process(ctx, args...)
	var log bytes.Buffer // read only after the process has ended
	cmd.Stdout, cmd.Stderr = in, &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	s.running.Go(func() {
		err := cmd.Wait()
		if !cmd.ProcessState.Success() || ctx.Err() == nil {
			s.fail(fmt.Errorf("the server ended: %w\n%s", err, log.String()))
		}
		_ = in.Close()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, address, found := strings.Cut(lines.Text(), "The OCI registry is at http://"); found {
			s.registry = address
			token, err := os.ReadFile(filepath.Join(data, "registry-token"))
			if err != nil {
				return err
			}
			s.login = crane.WithAuth(&authn.Basic{Username: "exeunt-admin", Password: strings.TrimSpace(string(token))})
			s.running.Go(func() { _, _ = io.Copy(io.Discard, out) }) // until the process ends
			return nil
		}
	}
	return errors.New("the server does not serve")
}

// process makes a command that ends with the context.
func (s *stage) process(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.Exeunt, args...)
	cmd.SysProcAttr = leash.OwnGroup()
	return cmd
}

// play runs a part of the demo until the context ends or until leave is called, which
// waits for its end. If the part fails, the demo ends.
func (s *stage) play(parent context.Context, who string, run func(context.Context) error) (leave func()) {
	ctx, cancel := context.WithCancel(parent)
	done := make(chan struct{})
	s.running.Go(func() {
		defer close(done)
		// A derived context ends shortly after its parent.
		if err := run(ctx); err != nil && parent.Err() == nil && ctx.Err() == nil {
			s.fail(fmt.Errorf("%s: %w", who, err))
		}
	})
	return func() {
		cancel()
		<-done
	}
}

// fail records an error and ends the demo.
func (s *stage) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, err)
	s.stop()
}

// close ends everything that runs, waits for it, and returns the errors of the parts that
// failed.
func (s *stage) close() error {
	s.stop()
	s.running.Wait()
	return errors.Join(s.failures...)
}

// command runs kubectl or exeunt, prints the command and its output, and returns the
// output.
func (s *stage) command(ctx context.Context, line string) (string, error) {
	s.line("$ %s", line)
	out, err := s.quiet(ctx, line)
	s.block(out)
	return out, err
}

// quiet runs a command and prints nothing.
func (s *stage) quiet(ctx context.Context, line string) (string, error) {
	words := strings.Fields(line)
	program := map[string]string{"kubectl": s.Kubectl, "exeunt": s.Exeunt}[words[0]]
	cmd := exec.CommandContext(ctx, program, words[1:]...)
	cmd.SysProcAttr = leash.Leash()
	cmd.Dir = s.Examples
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "HOME="+s.Dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w\n%s%s", line, err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

// until polls until the condition holds.
func until(ctx context.Context, what string, condition func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
