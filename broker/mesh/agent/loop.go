package agent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/internal/task"
)

const (
	// pollWait is how long the server may hold a poll.
	pollWait = 25 * time.Second
	// firstHeartbeat is the interval until the server has sent one.
	firstHeartbeat = 10 * time.Second
)

// loops sends heartbeats and updates the list of peers until the context ends.
// The two loops are independent: the poll notices a drain at once, and a
// heartbeat notices it when polls fail.
func (a *Agent) loops(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { a.sendHeartbeats(ctx) })
	running.Go(func() { a.poll(ctx) })
	running.Wait()
}

// sendHeartbeats sends heartbeats.
func (a *Agent) sendHeartbeats(ctx context.Context) {
	every := firstHeartbeat
	for {
		var answer v1alpha1.Heartbeat
		err := a.client.retry(ctx, a.log, "heartbeat", func(ctx context.Context) error {
			return a.client.call(ctx, v1alpha1.HeartbeatPath, nil, &answer)
		})
		if err == nil {
			a.noteDrain(answer.Self)
			every = max(time.Duration(answer.HeartbeatSeconds)*time.Second, time.Second)
		} else if a.refused(ctx, err) {
			return
		}
		if !task.Sleep(ctx, every) {
			return
		}
	}
}

// poll updates the list of peers.
func (a *Agent) poll(ctx context.Context) {
	var since int64
	for ctx.Err() == nil {
		var answer v1alpha1.Peers
		err := a.client.retry(ctx, a.log, "peers", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, pollWait+callTimeout)
			defer cancel()
			path := fmt.Sprintf("%s?since=%d&wait=%s", v1alpha1.PeersPath, since, pollWait)
			return a.client.do(ctx, http.MethodGet, path, nil, &answer)
		})
		if err != nil {
			if a.refused(ctx, err) {
				return
			}
			since = 0
			task.Sleep(ctx, jitter(lastPause))
			continue
		}
		since = answer.Revision
		a.noteDrain(answer.Self)
		if answer.Changed {
			a.log.Debug("peers", "count", len(answer.Peers))
			if err := a.dir.savePeers(answer.Peers); err != nil {
				a.log.Error("the list of peers is not kept", "error", err)
			}
		}
	}
}

// noteDrain passes a drain request to Run.
func (a *Agent) noteDrain(self v1alpha1.Self) {
	if self.Draining {
		select {
		case a.asked <- time.Duration(self.DrainSeconds) * time.Second:
		default: // already noted
		}
	}
}

// refused reports whether the refusal is final, and logs it.
func (a *Agent) refused(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	if !refusedFor(err, v1alpha1.ReasonUnknownNode) {
		a.log.Error("the server refuses", "error", err)
		return false
	}
	select {
	case a.gone <- struct{}{}:
	default:
	}
	return true
}

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
