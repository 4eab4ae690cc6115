package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

const (
	// startPatience bounds a start, stopPatience the stop after it.
	startPatience = 2 * time.Minute
	stopPatience  = 30 * time.Second
	// startPoll is the poll interval of a starting server, and so the error of
	// the measurement. A request to a closed port is cheap.
	startPoll = time.Millisecond
)

// RunStart starts Command repeatedly and measures the time from the start of
// the process until it answers /readyz with 200, its CPU time until then, and
// its memory at that time. It stops each server with SIGTERM before the next
// start.
func RunStart(ctx context.Context, config Config) (Result, error) {
	config = config.withDefaults()
	switch {
	case len(config.Command) == 0:
		return Result{}, errors.New("bench: no command to start")
	case config.Kubeconfig == "":
		return Result{}, errors.New("bench: no kubeconfig of the server to start")
	case config.Rounds < 1:
		return Result{}, fmt.Errorf("bench: rounds is %d, want 1 or more", config.Rounds)
	}
	var t tally
	var cost Cost
	var elapsed time.Duration
	for range config.Rounds {
		began := time.Now()
		at, used, err := startOnce(ctx, config)
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		t.count(at, 0, err)
		elapsed += time.Since(began)
		cost.CPU += used.cpu
		cost.Resident = max(cost.Resident, used.resident)
	}
	measure, err := meter{}.stopAfter("start", &t, elapsed)
	if t.ops > 0 {
		cost.CPUPerOperation = cost.CPU / time.Duration(t.ops)
		measure.Server = &cost
	}
	return Result{Workload: "start", Measures: []Measure{measure}}, err
}

// startOnce starts and stops the server once.
func startOnce(ctx context.Context, config Config) (took time.Duration, used usage, err error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	cmd := exec.Command(config.Command[0], config.Command[1:]...)
	cmd.Stderr = os.Stderr
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, usage{}, fmt.Errorf("start %s: %w", config.Command[0], err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	err = awaitReady(ctx, config.Kubeconfig, begin, exited)
	took = time.Since(begin)
	if err != nil {
		// A server that did not start is killed.
		return 0, usage{}, errors.Join(err, ignoreDone(cmd.Process.Kill()))
	}
	used, err = readUsage(cmd.Process.Pid)
	return took, used, errors.Join(err, stopServer(cmd.Process, exited))
}

func stopServer(process *os.Process, exited <-chan error) error {
	if err := process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	select {
	case err := <-exited:
		if err != nil {
			return fmt.Errorf("the server ended with an error: %w", err)
		}
		return nil
	case <-time.After(stopPatience):
		return errors.Join(fmt.Errorf("the server runs on %s after SIGTERM", stopPatience), ignoreDone(process.Kill()))
	}
}

func ignoreDone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// awaitReady returns when the server is ready. The kubeconfig may be missing at
// first, or be left over from the previous start, so it is read again whenever
// it has changed.
func awaitReady(ctx context.Context, kubeconfig string, begin time.Time, exited <-chan error) error {
	var probe *pool
	var read time.Time
	last := errors.New("no kubeconfig")
	for {
		if info, err := os.Stat(kubeconfig); err == nil && !info.ModTime().Equal(read) {
			if rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
				last = err // possibly half written
			} else if probe, err = openPool(rest, 1); err != nil {
				return err
			} else {
				read = info.ModTime()
			}
		}
		if probe != nil {
			if _, last = probe.client(0).get(ctx, "/readyz", ""); last == nil {
				probe.close()
				return nil
			}
		}
		select {
		case err := <-exited:
			return errors.Join(errors.New("the server ended while starting"), err)
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready after %s: %w", time.Since(begin).Round(time.Millisecond), last)
		case <-time.After(startPoll):
		}
	}
}
