package access

import (
	"hash/maphash"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/inflight"
)

const (
	// An address may present failureBurst wrong credentials at once, and failureRate more
	// each second. So may one wrong credential that a program repeats.
	failureBurst = 50
	failureRate  = 5.0
	// maxRemembered bounds the failures and the good credentials that a Throttle remembers
	// in each of two generations: less than a megabyte each.
	maxRemembered = 10000
)

// Throttle slows clients that present wrong credentials, per address: 429 with
// Retry-After, before the credential is checked. Share one between all listeners of a
// process (Door.Throttle).
//
// A credential that was good before is always checked, and good ones cost nothing, so
// clients behind one address (NAT) do not suffer from a guest among them who guesses.
// A credential that is new to the process waits with the guesses, for a fifth of a second
// at least. A program that repeats one wrong credential, such as an expired token, is
// slowed by itself and does not use up its address's allowance.
//
// Memory is bounded: an attacker with more addresses than are remembered is not slowed
// per address by anything. It is safe for concurrent use.
type Throttle struct {
	now  func() time.Time
	seed maphash.Seed

	attempts [3]atomic.Int64 // by Success, Failure and Throttled

	mu    sync.Mutex
	good  recent[struct{}] // by credential; guarded by mu
	wrong recent[*bucket]  // by address, and by address and credential; guarded by mu
}

// NewThrottle makes a throttle. Now is time.Now outside of tests.
func NewThrottle(now func() time.Time) *Throttle {
	return &Throttle{now: now, seed: maphash.MakeSeed()}
}

// Result is that of an authentication. The first two are Kubernetes' words.
type Result int

const (
	Success Result = iota
	Failure
	Throttled // not tried, because of failures before
)

func (a Result) String() string { return [...]string{"success", "failure", "throttled"}[a] }

// Attempts is how many authentications had a result, on all listeners.
func (t *Throttle) Attempts(a Result) int64 { return t.attempts[a].Load() }

// bucket counts failures: full is failureBurst, and one refills failureRate a second.
type bucket struct {
	left float64
	at   time.Time
}

// refill returns what is left now.
func (b *bucket) refill(now time.Time) float64 {
	b.left = min(failureBurst, b.left+now.Sub(b.at).Seconds()*failureRate)
	b.at = now
	return b.left
}

// Wait returns how long the client must wait before this credential is checked; zero: it
// is checked now. An empty credential never waits.
func (t *Throttle) Wait(address, credential string) time.Duration {
	if credential == "" {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wrong.empty() {
		return 0
	}
	now, from := t.now(), inflight.Network(address)
	wait := t.wait(t.hash(from, credential), now)
	if _, known := t.good.get(t.hash("", credential)); !known {
		wait = max(wait, t.wait(t.hash(from, ""), now))
	}
	if wait > 0 {
		t.attempts[Throttled].Add(1)
	}
	return wait
}

// wait requires mu.
func (t *Throttle) wait(key uint64, now time.Time) time.Duration {
	b, ok := t.wrong.get(key)
	if !ok || b.refill(now) >= 1 {
		return 0
	}
	return time.Duration((1 - b.left) / failureRate * float64(time.Second))
}

// Succeeded records that a credential was good. An empty one, of a client with a
// certificate or a session, is counted only.
func (t *Throttle) Succeeded(credential string) {
	if t.attempts[Success].Add(1); credential == "" {
		return
	}
	key := t.hash("", credential)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.good.get(key); !known {
		t.good.put(key, struct{}{})
	}
}

// Failed records that a credential was wrong, or counts that there was none.
func (t *Throttle) Failed(address, credential string) {
	if t.attempts[Failure].Add(1); credential == "" {
		return
	}
	from, now := inflight.Network(address), t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.good.drop(t.hash("", credential))
	repeated := t.hash(from, credential)
	if b, ok := t.wrong.get(repeated); ok && b.refill(now) < failureBurst {
		b.left = max(0, b.left-1)
		return
	}
	t.wrong.put(repeated, &bucket{failureBurst - 1, now})
	b, ok := t.wrong.get(t.hash(from, ""))
	if !ok {
		b = &bucket{failureBurst, now}
		t.wrong.put(t.hash(from, ""), b)
	}
	b.left = max(0, b.refill(now)-1)
}

func (t *Throttle) hash(from, credential string) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	_, _ = h.WriteString(from) // never fails
	_ = h.WriteByte(0)
	_, _ = h.WriteString(credential)
	return h.Sum64()
}

// recent is a map that forgets: when the young generation is full it becomes the old
// one, and the old one is dropped. What is used moves to the young one.
type recent[V any] struct{ young, old map[uint64]V }

func (r *recent[V]) empty() bool { return len(r.young)+len(r.old) == 0 }

func (r *recent[V]) get(key uint64) (V, bool) {
	if v, ok := r.young[key]; ok {
		return v, true
	}
	v, ok := r.old[key]
	if ok {
		r.put(key, v)
	}
	return v, ok
}

func (r *recent[V]) put(key uint64, value V) {
	if r.young == nil || len(r.young) >= maxRemembered {
		r.young, r.old = map[uint64]V{}, r.young
	}
	r.young[key] = value
}

func (r *recent[V]) drop(key uint64) {
	delete(r.young, key)
	delete(r.old, key)
}

// Throttle returns the throttle of failed logins, for listeners that check credentials
// themselves.
func (d *Door) Throttle() *Throttle { return d.throttle }

// Slow returns how long the client must wait before Authenticate checks the credential of
// the request, because of failures before; zero: it need not. A listener answers 429.
func (d *Door) Slow(req *http.Request) time.Duration {
	return d.throttle.Wait(req.RemoteAddr, secretOf(req))
}

// secretOf returns the credential that Authenticate will check and that can be guessed. A
// certificate, or a session, comes first and cannot.
func secretOf(req *http.Request) string {
	if _, session := ClientFrom(req.Context()); session || req.TLS != nil && len(req.TLS.VerifiedChains) > 0 {
		return ""
	}
	return req.Header.Get("Authorization")
}
