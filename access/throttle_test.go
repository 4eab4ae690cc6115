package access

import (
	"fmt"
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
