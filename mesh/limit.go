package mesh

import (
	"net/http"
	"sync"

	"golang.org/x/time/rate"

	"github.com/exeunt/exeunt/inflight"
)

// limiter bounds the request rate of each client address. It stores a bounded
// number of addresses: at the limit it forgets all of them, which helps an
// attacker with many addresses and costs other clients nothing.
type limiter struct {
	every rate.Limit // requests per second
	burst int

	mu        sync.Mutex
	addresses map[string]*rate.Limiter // guarded by mu
}

// maxAddresses is the number of addresses that a limiter stores.
const maxAddresses = 10000

func newLimiter(every rate.Limit, burst int) *limiter {
	return &limiter{every: every, burst: burst, addresses: map[string]*rate.Limiter{}}
}

// allow reports whether the request is within its address's rate.
func (l *limiter) allow(req *http.Request) bool {
	host := inflight.Network(req.RemoteAddr)
	l.mu.Lock()
	address := l.addresses[host]
	if address == nil {
		if len(l.addresses) >= maxAddresses {
			clear(l.addresses)
		}
		address = rate.NewLimiter(l.every, l.burst)
		l.addresses[host] = address
	}
	l.mu.Unlock()
	return address.Allow()
}
