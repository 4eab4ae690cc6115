package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"testing"
	"time"
)

const nat = "192.0.2.1:4711"

// guesses presents n wrong credentials from an address, as a listener does, and returns
// how many were checked.
func guesses(th *Throttle, address string, n int) (checked int) {
	for i := range n {
		guess := fmt.Sprintf("Bearer guess %s %d %v", address, i, th.now())
		if th.Wait(address, guess) == 0 {
			th.Failed(address, guess)
			checked++
		}
	}
	return checked
}

func TestThrottle(t *testing.T) {
	now := time.Unix(1000, 0)
	th := NewThrottle(func() time.Time { return now })
	th.Succeeded("Bearer good")
	if checked := guesses(th, nat, 10000); checked != failureBurst {
		t.Fatalf("%d guesses were checked at once, want %d", checked, failureBurst)
	}
	if wait := th.Wait(nat, "Bearer good"); wait != 0 {
		t.Errorf("a credential that was good before waits %s", wait)
	}
	if wait := th.Wait("192.0.2.2:1", "Bearer new"); wait != 0 {
		t.Errorf("another address waits %s", wait)
	}
	wait := th.Wait(nat, "Bearer new")
	if wait <= 0 || wait > time.Second {
		t.Errorf("a new credential waits %s", wait)
	}
	now = now.Add(wait)
	if wait := th.Wait(nat, "Bearer new"); wait != 0 {
		t.Errorf("after its wait, a new credential waits %s more", wait)
	}
	now = now.Add(10 * time.Second)
	if checked := guesses(th, nat, 10000); checked != failureBurst {
		t.Errorf("%d guesses were checked after ten seconds, want %d", checked, failureBurst)
	}
	th.Failed(nat, "Bearer good") // it was revoked
	if wait := th.Wait(nat, "Bearer good"); wait == 0 {
		t.Error("a revoked credential is still preferred")
	}
}

// TestThrottleRepeated: a client that repeats one wrong credential is slowed down, and
// does not use up the allowance of its address.
func TestThrottleRepeated(t *testing.T) {
	now := time.Unix(1000, 0)
	th := NewThrottle(func() time.Time { return now })
	checked := 0
	for range 10000 {
		if th.Wait(nat, "Bearer expired") == 0 {
			th.Failed(nat, "Bearer expired")
			checked++
		}
	}
	if checked != failureBurst {
		t.Errorf("one wrong credential was checked %d times at once, want %d", checked, failureBurst)
	}
	if checked := guesses(th, nat, 1000); checked != failureBurst-1 {
		t.Errorf("%d other credentials were checked, want %d", checked, failureBurst-1)
	}
}

// TestThrottleReturning: wrong credentials that come back after a while count for their address again, like new ones.
func TestThrottleReturning(t *testing.T) {
	now := time.Unix(1000, 0)
	th := NewThrottle(func() time.Time { return now })
	for range 2 {
		now = now.Add(time.Minute)
		if wait := th.Wait(nat, "Bearer new"); wait != 0 {
			t.Errorf("after a minute a new credential waits %s", wait)
		}
		for i := range failureBurst {
			th.Failed(nat, fmt.Sprint("Bearer ", i))
		}
		if th.Wait(nat, "Bearer new") == 0 {
			t.Errorf("after %d wrong credentials a new one does not wait", failureBurst)
		}
	}
}

// TestThrottleConnections: a wrong token is counted however it comes. A client without one is never slow, nor one whose
// certificate was verified, and neither slows others.
func TestThrottleConnections(t *testing.T) {
	verified := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
	for name, test := range map[string]struct {
		state         *tls.ConnectionState
		authorization string
		want          bool // it is slow
	}{
		"a token without TLS":       {nil, "Bearer x", true},
		"a token":                   {&tls.ConnectionState{}, "Bearer x", true},
		"nothing":                   {&tls.ConnectionState{}, "", false},
		"a certificate":             {verified, "", false},
		"a certificate and a token": {verified, "Bearer x", false},
	} {
		c := control()
		req := func(authorization string) *http.Request {
			return &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/api"}, RemoteAddr: nat, TLS: test.state, Header: http.Header{"Authorization": {authorization}}}
		}
		for range 2 * failureBurst {
			if _, ok := c.Authenticate(req(test.authorization)); ok {
				t.Fatalf("%s: authenticated", name)
			}
		}
		if wait := c.Slow(req(test.authorization)); (wait > 0) != test.want {
			t.Errorf("%s: waits %s", name, wait)
		}
		// The failures of one credential take one of the allowance of its address.
		other := &http.Request{RemoteAddr: nat, Header: http.Header{"Authorization": {"Bearer other"}}}
		for range failureBurst - 1 {
			c.Throttle().Failed(nat, fmt.Sprint("Bearer ", rand.Int64()))
		}
		if wait := c.Slow(other); (wait > 0) != test.want {
			t.Errorf("%s: another client of its address waits %s", name, wait)
		}
	}
}

// TestThrottleIsBounded: the memory is bounded for any input of clients.
func TestThrottleIsBounded(t *testing.T) {
	th := NewThrottle(time.Now)
	for i := range 5 * maxRemembered {
		th.Failed(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), fmt.Sprint(i))
		th.Succeeded(fmt.Sprint("good", i))
	}
	for name, n := range map[string]int{"wrong": th.wrong.Len(), "good": th.good.Len()} {
		if n > maxRemembered {
			t.Errorf("%d %s credentials are remembered", n, name)
		}
	}
}
