package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/internal/task"
)

const (
	// hookPause is the pause before a failed command runs again.
	hookPause = 2 * time.Second
	// ackTimeout bounds the attempts to send the acknowledgement after the
	// deadline: the server may be restarting.
	ackTimeout = 30 * time.Second
)

// drain finishes the node's connections within a time, and then sends the
// acknowledgement. If it does not finish, it sends none: the server removes the
// node at the deadline, and records that there was no acknowledgement.
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
	bounded, cancel = context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	err := a.client.retry(bounded, a.log, "drained", func(ctx context.Context) error { return a.client.call(ctx, v1alpha1.DrainedPath, nil) })
	if err != nil && !refusedFor(err, v1alpha1.ReasonUnknownNode) {
		return fmt.Errorf("drained, but the server did not get the acknowledgement: %w; start the agent again to send it", err)
	}
	return a.left("drained")
}

// finish stops accepting connections, runs the operator's command and waits for
// the open connections. It reports whether all of it ended in time.
func (a *Agent) finish(ctx context.Context) bool {
	a.relay.stop()
	for a.config.OnDrain != "" {
		err := a.hook(ctx)
		if err == nil {
			break
		}
		a.log.Warn("the command of --on-drain failed", "error", err)
		if !task.Sleep(ctx, hookPause) {
			return false
		}
	}
	return a.relay.wait(ctx)
}

// hook runs the operator's command and kills it at the deadline.
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

// awaitRemoval waits until the server has removed the node: the loops then get
// UnknownNode.
func (a *Agent) awaitRemoval(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	select {
	case <-a.gone:
		return a.left("removed by the server without our word")
	case <-ctx.Done():
		return fmt.Errorf("the node did not drain in time, and the server has not removed it")
	}
}
