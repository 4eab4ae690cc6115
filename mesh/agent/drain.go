package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/exeunt/exeunt/mesh/v1alpha1"
)

const (
	// hookPause is how long after a command that failed it is run again.
	hookPause = 2 * time.Second
	// wordTimeout bounds how long the server is told after the deadline: it may
	// only be restarting.
	wordTimeout = 30 * time.Second
)

// drain finishes the node's connections within a time, and tells the server when
// it has. When it has not, it says nothing: the server removes the node at the
// deadline, and records that it did so without the node's word.
func (a *Agent) drain(ctx context.Context, within time.Duration) error {
	a.dir.state.Leaving = true
	if err := a.dir.save(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, within)
	finished := a.finish(bounded)
	cancel()
	if !finished {
		a.log.Warn("not finished in time", "connections", a.relay.count())
		a.relay.cut()
		return a.awaitRemoval(ctx)
	}
	bounded, cancel = context.WithTimeout(ctx, wordTimeout)
	defer cancel()
	err := a.client.retry(bounded, a.log, "drained", func(ctx context.Context) error { return a.client.call(ctx, v1alpha1.DrainedPath, nil) })
	if err != nil && !refusedFor(err, v1alpha1.ReasonUnknownNode) {
		return fmt.Errorf("drained, but the server could not be told: %w; start again to tell it", err)
	}
	return a.left("drained")
}

// finish takes no more connections, runs the operator's command and waits for
// the connections that are left. It says whether all of it was done in time.
func (a *Agent) finish(ctx context.Context) bool {
	a.relay.stop()
	for a.config.OnDrain != "" {
		err := a.hook(ctx)
		if err == nil {
			break
		}
		a.log.Warn("the command of --on-drain failed", "error", err)
		if !sleep(ctx, hookPause) {
			return false
		}
	}
	return a.relay.wait(ctx)
}

// hook runs the operator's command. It is killed at the deadline.
func (a *Agent) hook(ctx context.Context) error {
	left := 0
	if deadline, ok := ctx.Deadline(); ok {
		left = int(time.Until(deadline).Seconds())
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", a.config.OnDrain)
	cmd.Env = append(os.Environ(), "EXEUNT_NODE="+a.dir.state.Name, "EXEUNT_PROJECT="+a.dir.state.Project, "EXEUNT_DRAIN_SECONDS="+strconv.Itoa(left))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.WaitDelay = time.Second
	return cmd.Run()
}

// awaitRemoval waits until the server has removed the node. That it does not
// know us any more is what we wait for; the loops notice it.
func (a *Agent) awaitRemoval(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, wordTimeout)
	defer cancel()
	select {
	case <-a.gone:
		return a.left("removed by the server without our word")
	case <-ctx.Done():
		return fmt.Errorf("the node did not drain in time, and the server has not removed it")
	}
}
