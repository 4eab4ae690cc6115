package mesh

import (
	"net"
	"net/http"
	"sync"

	"golang.org/x/time/rate"
)

// limiter bounds how often one address may call. It remembers a bounded number
// of addresses: when there are more, it forgets all of them and begins again,
// which favours a caller that comes from everywhere and costs everybody else
// nothing.
type limiter struct {
	every rate.Limit // calls a second
	burst int

	mu      sync.Mutex
	callers map[string]*rate.Limiter // guarded by mu
}

// maxCallers is how many addresses a limiter remembers.
const maxCallers = 10000

func newLimiter(every rate.Limit, burst int) *limiter {
	return &limiter{every: every, burst: burst, callers: map[string]*rate.Limiter{}}
}

// allow says whether a request may go on.
func (l *limiter) allow(req *http.Request) bool {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		host = req.RemoteAddr
	}
	l.mu.Lock()
	caller := l.callers[host]
	if caller == nil {
		if len(l.callers) >= maxCallers {
			clear(l.callers)
		}
		caller = rate.NewLimiter(l.every, l.burst)
		l.callers[host] = caller
	}
	l.mu.Unlock()
	return caller.Allow()
}
