package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/reconcile"
)

// substrates implements both ports of a Follower. Everything runs in a synctest bubble, so
// only one goroutine uses it at a time.
type substrates struct {
	kinds   []broker.ObjectType
	fail    map[string]error // by kind
	begun   chan string      // a watch of a kind
	ended   chan string
	changes chan broker.ProvisionedResourceID
	looks   chan look
}

type look struct {
	id  broker.ProvisionedResourceID
	due time.Time
}

func (s *substrates) KindsInUse(context.Context) ([]broker.ObjectType, error) { return s.kinds, nil }

func (s *substrates) MakeDue(_ context.Context, id broker.ProvisionedResourceID, due time.Time) error {
	s.looks <- look{id, due}
	return nil
}

func (s *substrates) Watch(ctx context.Context, kind broker.ObjectType, changed func(broker.ProvisionedResourceID)) error {
	s.begun <- kind.Kind
	defer func() { s.ended <- kind.Kind }()
	if err := s.fail[kind.Kind]; err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case id := <-s.changes:
			if id == "" {
				return nil // the cluster ends the watch
			}
			changed(id)
		}
	}
}

// TestFollower: kinds are watched while they are in use, watches are restarted, and a
// resource that changes constantly is reviewed at intervals.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &substrates{
			kinds: []broker.ObjectType{{Kind: "XNode"}}, fail: map[string]error{"Denied": errors.New("forbidden")},
			begun: make(chan string, 9), ended: make(chan string, 9), changes: make(chan broker.ProvisionedResourceID), looks: make(chan look, 9),
		}
		woken := 0
		f := &reconcile.Follower{Cluster: s, Substrates: s, Wake: func() { woken++ }, Logger: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		if kind := <-s.begun; kind != "XNode" {
			t.Errorf("watches %s", kind)
		}
		now := time.Now()
		for i, want := range []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond} {
			s.changes <- "id-1"
			if got := <-s.looks; got.id != "id-1" || !got.due.Equal(now.Add(want)) {
				t.Errorf("change %d: %+v is due %v from now, want %v", i, got, got.due.Sub(now), want)
			}
		}
		s.changes <- "id-2"
		if got := <-s.looks; got.id != "id-2" || !got.due.Equal(now) {
			t.Errorf("another: %+v", got)
		}
		s.changes <- "" // it ends, and begins again
		if ended, begun := <-s.ended, <-s.begun; ended != "XNode" || begun != "XNode" {
			t.Errorf("%s ended, %s began", ended, begun)
		}
		s.kinds = []broker.ObjectType{{Kind: "Denied"}}
		if begun, ended := <-s.begun, <-s.ended; begun != "Denied" || ended != "XNode" && ended != "Denied" {
			t.Errorf("%s began, %s ended", begun, ended)
		}
		<-s.ended // the other of the two
		before := time.Now()
		for range 3 { // it fails and is retried, with growing delays
			<-s.begun
			<-s.ended
		}
		if waited := time.Since(before); waited != 7*time.Second {
			t.Errorf("three more tries took %v", waited)
		}
		cancel()
		if err := <-done; err != nil || woken != 4 {
			t.Errorf("ended with %v, woke %d times", err, woken)
		}
	})
}
