package gc

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// gate keeps a webhook that does not work from taking the admitters' time: after a
// failure the kind is not asked about for a while, and then by one admitter.
type gate struct {
	now  func() time.Time
	mu   sync.Mutex
	down map[string]*outage // by kind; guarded by mu
}

type outage struct {
	failures int
	until    time.Time
	err      error
	asking   bool
}

// The first wait after a failure, and the longest.
const (
	gateFirst = time.Second
	gateMost  = 30 * time.Second
)

// enter returns the last error while the kind is not asked about.
func (g *gate) enter(kind string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.down[kind]
	switch {
	case o == nil:
		return nil
	case o.asking, g.now().Before(o.until):
		return o.err
	}
	o.asking = true
	return nil
}

// leave records how asking ended. A refusal is an answer: the webhook works.
func (g *gate) leave(kind string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !isOutage(err) {
		delete(g.down, kind)
		return
	}
	if g.down == nil {
		g.down = map[string]*outage{}
	}
	o := g.down[kind]
	if o == nil {
		o = &outage{}
		g.down[kind] = o
	}
	o.err, o.asking = err, false
	o.until = g.now().Add(min(gateFirst<<min(o.failures, 10), gateMost))
	o.failures++
}

// isOutage reports whether an error says that a webhook could not be asked.
func isOutage(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded)
}
