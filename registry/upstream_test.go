package registry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// clients are those of a fetch.
type clients struct {
	f     fetches
	began int
	reads bool       // the fetch has its turn when it begins
	end   chan error // how it ends
}

func newClients(t *testing.T) *clients {
	c := &clients{end: make(chan error), f: fetches{under: map[string]*fetch{}}}
	c.f.ctx, c.f.end = context.WithCancel(t.Context())
	t.Cleanup(func() { c.f.end(); c.f.all.Wait() })
	return c
}

// fetch waits for its turn until it is abandoned, as Upstream.Ask does. Its end comes when the test says so.
func (c *clients) fetch(ctx context.Context, one *fetch) error {
	c.began++
	abandoned := one.abandoned
	if c.reads {
		abandoned = nil
	}
	select {
	case err := <-c.end:
		return err
	case <-abandoned:
		<-c.end
		return ErrAbandoned
	case <-ctx.Done():
		return ctx.Err()
	}
}

// come joins the fetch and waits for it.
func (c *clients) come(ctx context.Context) (leave context.CancelFunc, result <-chan error) {
	ctx, leave = context.WithCancel(ctx)
	left := make(chan error, 1)
	go func() { _, _, err := c.f.share(ctx, "a", false, c.fetch); left <- err }()
	synctest.Wait()
	return leave, left
}

// TestFetchIsAbandoned: a fetch is abandoned when the last client that waits for it has gone, and not before.
func TestFetchIsAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClients(t)
		leave, first := c.come(t.Context())
		leaveToo, second := c.come(t.Context())
		one := c.f.under["a"]
		gone := func() bool {
			select {
			case <-one.abandoned:
				return true
			default:
				return false
			}
		}
		leave()
		if <-first; gone() {
			t.Error("it is abandoned, and one client waits")
		}
		leaveToo()
		if <-second; !gone() {
			t.Error("it is not abandoned")
		}
		c.end <- nil
	})
}

// TestJoinAbandonedFetch: clients that join a fetch after its last one has left get what they ask for, from that fetch if it
// has begun to read, and otherwise from one new fetch.
func TestJoinAbandonedFetch(t *testing.T) {
	t.Parallel()
	for name, reads := range map[string]bool{"that waits": false, "that reads": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClients(t)
				c.reads = reads
				leave, first := c.come(t.Context())
				leave()
				if err := <-first; !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				_, second := c.come(t.Context()) // the fetch is abandoned, and has not ended
				leave, third := c.come(t.Context())
				leave() // it leaves again, and the second stays
				if err := <-third; !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				want := 1
				if !reads {
					c.end <- nil // with ErrAbandoned
					synctest.Wait()
					want = 2
				}
				_, fourth := c.come(t.Context())
				c.end <- nil
				if err := errors.Join(<-second, <-fourth); err != nil || c.began != want {
					t.Errorf("error %v after %d fetches, not %d", err, c.began, want)
				}
			})
		})
	}
}
