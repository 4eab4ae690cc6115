package agent

import (
	"context"
	"fmt"
	"net/http"
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
