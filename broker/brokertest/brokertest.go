// Package brokertest is the test suite that every implementation of the
// broker's Repository and Emitter must pass. It uses the ports only; begin with
// [Run].
package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/broker"
)

// Ports is a fresh, empty implementation.
type Ports struct {
	Repository broker.Repository
	Emitter    broker.Emitter
	// Outbox lists the events of a resource, in the order of the outbox.
	Outbox func(t *testing.T, id broker.ProvisionedResourceID) []broker.EventType
}

// EventTypes are all types, in lifecycle order.
var EventTypes = []broker.EventType{broker.EventRequested, broker.EventReady, broker.EventFailed, broker.EventDeleting, broker.EventDeleted}

// Run runs the suite. newPorts is called once for each test in it.
func Run(t *testing.T, newPorts func(t *testing.T) Ports) {
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"what is created can be read", testCreate},
		{"an id is created once", testCreateTwice},
		{"a name is taken until its holder is Deleted", testTakenName},
		{"what is not there is not found", testNotFound},
		{"every phase can be stored", testPhases},
		{"a phase is written over the phase that was read", testUpdatePhase},
		{"a token is bound over the token that was read", testBindToken},
		{"no token is bound once deletion was requested", testBindAfterDeletion},
		{"deletion is recorded from every phase, once", testRecordDeletion},
		{"an event is stored in its phase", testEmit},
		{"an event is stored once", testEmitTwice},
		{"many deletions at once", testDeletionRace},
		{"many updates at once", testUpdateRace},
		{"many tokens at once", testBindRace},
		{"Ready against a deletion", testEmitRace},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(&suite{T: t, Ports: newPorts(t)}) })
	}
}

// suite is one test.
type suite struct {
	*testing.T
	Ports
}

// start has millisecond precision, because implementations store milliseconds.
var start = time.Date(2026, 5, 6, 7, 8, 9, 123e6, time.UTC)

func state(id, name string) broker.State {
	return broker.State{
		ID: broker.ProvisionedResourceID(id), Project: "shop", Name: name,
		Blueprint: broker.BlueprintVersionRef{Name: "node", Version: "1.2.0"}, Credential: "cloud",
		Parameters:     broker.Parameters{"size": int64(4), "price": 2.0, "share": 0.5, "spot": true, "region": "nördlich"},
		XR:             broker.ObjectType{APIVersion: "example.org/v1", Kind: "XNode"},
		ProviderConfig: broker.ObjectType{APIVersion: "aws.example.org/v1", Kind: "ProviderConfig"},
		Deadline:       time.Hour, RequestDigest: "d1", Phase: broker.PhasePending,
		CreatedAt: start, ConvergeStartedAt: start,
	}
}

func (s *suite) restore(st broker.State) broker.ProvisionedResource {
	s.Helper()
	r, err := broker.Restore(st)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// create stores a new resource.
func (s *suite) create(id, name string) broker.ProvisionedResource {
	s.Helper()
	r := s.restore(state(id, name))
	s.ok(s.Repository.Create(s.Context(), r))
	return r
}

// in stores a new resource and leads it into a phase.
func (s *suite) in(id string, phase broker.ProvisionedResourcePhase) broker.ProvisionedResource {
	s.Helper()
	r := s.create(id, "name-of-"+id)
	st := r.State()
	if slices.Contains(teardown, phase) {
		r, _ = r.RequestDeletion(start.Add(time.Minute))
		s.ok(s.Repository.RecordDeletionIntent(s.Context(), r))
		st = r.State()
	}
	if from := st.Phase; from != phase {
		st.Phase = phase
		s.ok(s.Repository.UpdatePhase(s.Context(), from, s.restore(st)))
	}
	return s.read(id)
}

var teardown = []broker.ProvisionedResourcePhase{broker.PhaseDeregistering, broker.PhaseDeprovisioning, broker.PhaseDeleted}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) refused(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("got error %v, want %v", err, want)
	}
}

func (s *suite) read(id string) broker.ProvisionedResource {
	s.Helper()
	r, err := s.Repository.Get(s.Context(), broker.ProvisionedResourceID(id))
	s.ok(err)
	return r
}

// stored checks that the repository holds exactly this state.
func (s *suite) stored(want broker.State) {
	s.Helper()
	if diff := cmp.Diff(want, s.read(string(want.ID)).State()); diff != "" {
		s.Errorf("stored (-want +got):\n%s", diff)
	}
}

func (s *suite) events(id string, want ...broker.EventType) {
	s.Helper()
	if got := s.Outbox(s.T, broker.ProvisionedResourceID(id)); !slices.Equal(got, want) {
		s.Errorf("outbox of %s: %q, want %q", id, got, want)
	}
}

// race runs fn several times at once and returns the errors.
func race(ctx context.Context, n int, fn func(ctx context.Context, i int) error) []error {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { errs[i] = fn(ctx, i) })
	}
	running.Wait()
	return errs
}

// winners counts the calls that succeeded and expects the error loser from the
// rest.
func (s *suite) winners(errs []error, loser error) (n int) {
	s.Helper()
	for _, err := range errs {
		if err == nil {
			n++
		} else {
			s.refused(err, loser)
		}
	}
	return n
}

func head(r broker.ProvisionedResource, t broker.EventType) broker.EventHead {
	return broker.EventHead{
		EventID: broker.NewOutboxToken(r.ID(), t), OccurredAt: start,
		ProvisionedResourceID: r.ID(), ProjectID: r.State().Project, XRName: r.XRName(),
	}
}

func ready(r broker.ProvisionedResource) broker.Event {
	return broker.ProvisionedResourceReady{EventHead: head(r, broker.EventReady)}
}

func ids(n int) string { return fmt.Sprintf("id-%d", n) }
