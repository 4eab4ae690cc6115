package mesh

import (
	"net/http"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"github.com/exeunt/exeunt/internal/inflight"
)

// limiter bounds the request rate of each client address. It stores a bounded
// number of addresses, those that it saw last.
type limiter struct {
	every rate.Limit // requests per second
	burst int

	mu        sync.Mutex
	addresses *lru.Cache // of *rate.Limiter; an address is added under mu
}

// maxAddresses is the number of addresses that a limiter stores.
const maxAddresses = 10000

func newLimiter(every rate.Limit, burst int) *limiter {
	return &limiter{every: every, burst: burst, addresses: lru.New(maxAddresses)}
}

// allow reports whether the request is within its address's rate.
func (l *limiter) allow(req *http.Request) bool {
	host := inflight.Network(req.RemoteAddr)
	l.mu.Lock()
	address, ok := l.addresses.Get(host)
	if !ok {
		address = rate.NewLimiter(l.every, l.burst)
		l.addresses.Add(host, address)
	}
	l.mu.Unlock()
	return address.(*rate.Limiter).Allow()
}
