package access

import (
	"hash/maphash"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"github.com/exeunt/exeunt/internal/inflight"
)

const (
	// An address may present failureBurst wrong credentials at once, and failureRate more
	// each second. So may one wrong credential that a program repeats.
	failureBurst = 50
	failureRate  = 5.0
	// maxRemembered bounds the failures and the good credentials that a Throttle remembers:
	// a few megabytes each.
	maxRemembered = 20000
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

	mu    sync.Mutex // held while a failure is recorded
	good  *lru.Cache // the good credentials
	wrong *lru.Cache // of *rate.Limiter, by address, and by address and credential
}

// NewThrottle makes a throttle. Now is time.Now outside of tests.
func NewThrottle(now func() time.Time) *Throttle {
	return &Throttle{now: now, seed: maphash.MakeSeed(), good: lru.New(maxRemembered), wrong: lru.New(maxRemembered)}
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

// Wait returns how long the client must wait before this credential is checked; zero: it
// is checked now. An empty credential never waits.
func (t *Throttle) Wait(address, credential string) time.Duration {
	if credential == "" || t.wrong.Len() == 0 {
		return 0
	}
	now, from := t.now(), inflight.Network(address)
	wait := t.wait(t.hash(from, credential), now)
	if _, known := t.good.Get(t.hash("", credential)); !known {
		wait = max(wait, t.wait(t.hash(from, ""), now))
	}
	if wait > 0 {
		t.attempts[Throttled].Add(1)
	}
	return wait
}

func (t *Throttle) wait(key uint64, now time.Time) time.Duration {
	failures, ok := t.failures(key)
	if !ok {
		return 0
	}
	return max(0, time.Duration((1-failures.TokensAt(now))/failureRate*float64(time.Second)))
}

// failures returns the limiter of an address or of its credential.
func (t *Throttle) failures(key uint64) (*rate.Limiter, bool) {
	value, ok := t.wrong.Get(key)
	if !ok {
		return nil, false
	}
	return value.(*rate.Limiter), true
}

// fail counts a failure in a new limiter if there is none.
func (t *Throttle) fail(key uint64, now time.Time) {
	failures, ok := t.failures(key)
	if !ok {
		failures = rate.NewLimiter(failureRate, failureBurst)
		t.wrong.Add(key, failures)
	}
	failures.AllowN(now, 1)
}

// Succeeded records that a credential was good. An empty one, of a client with a
// certificate or a session, is counted only.
func (t *Throttle) Succeeded(credential string) {
	if t.attempts[Success].Add(1); credential == "" {
		return
	}
	t.good.Add(t.hash("", credential), nil)
}

// Failed records that a credential was wrong, or counts that there was none.
func (t *Throttle) Failed(address, credential string) {
	if t.attempts[Failure].Add(1); credential == "" {
		return
	}
	from, now := inflight.Network(address), t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.good.Remove(t.hash("", credential))
	repeated := t.hash(from, credential)
	if failures, ok := t.failures(repeated); !ok || failures.TokensAt(now) >= failureBurst {
		t.fail(t.hash(from, ""), now)
	}
	t.fail(repeated, now)
}

func (t *Throttle) hash(from, credential string) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	_, _ = h.WriteString(from) // never fails
	_ = h.WriteByte(0)
	_, _ = h.WriteString(credential)
	return h.Sum64()
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
