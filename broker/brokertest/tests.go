package brokertest

import (
	"context"
	"slices"
	"time"

	"github.com/exeunt/exeunt/broker"
)

func testCreate(s *suite) {
	r := s.create("id-1", "web")
	s.stored(r.State())
	s.events("id-1", broker.EventRequested)
}

func testCreateTwice(s *suite) {
	first := s.create("id-1", "web")
	again := state("id-1", "other")
	s.refused(s.Repository.Create(s.Context(), s.restore(again)), broker.ErrProvisionedResourceExists)
	s.stored(first.State())
	s.events("id-1", broker.EventRequested)
}

func testTakenName(s *suite) {
	s.create("id-1", "web")
	next := s.restore(state("id-2", "web"))
	s.refused(s.Repository.Create(s.Context(), next), broker.ErrProvisionedResourceExists)
	s.events("id-2")
	elsewhere := state("id-3", "web")
	elsewhere.Project = "bank"
	s.ok(s.Repository.Create(s.Context(), s.restore(elsewhere)))

	deleting, _ := s.read("id-1").RequestDeletion(start)
	s.ok(s.Repository.RecordDeletionIntent(s.Context(), deleting))
	s.refused(s.Repository.Create(s.Context(), next), broker.ErrProvisionedResourceExists)
	deleted := deleting.State()
	deleted.Phase = broker.PhaseDeleted
	s.ok(s.Repository.UpdatePhase(s.Context(), broker.PhaseDeregistering, s.restore(deleted)))
	s.ok(s.Repository.Create(s.Context(), next))
	s.stored(deleted)
}

func testNotFound(s *suite) {
	r := s.restore(state("id-1", "web"))
	deleting, _ := r.RequestDeletion(start)
	_, err := s.Repository.Get(s.Context(), "id-1")
	s.refused(err, broker.ErrProvisionedResourceNotFound)
	s.refused(s.Repository.UpdatePhase(s.Context(), broker.PhasePending, r), broker.ErrProvisionedResourceNotFound)
	s.refused(s.Repository.BindToken(s.Context(), "id-1", "", "t"), broker.ErrProvisionedResourceNotFound)
	s.refused(s.Repository.RecordDeletionIntent(s.Context(), deleting), broker.ErrProvisionedResourceNotFound)
	s.refused(s.Emitter.Emit(s.Context(), broker.PhaseEnrolling, ready(r)), broker.ErrProvisionedResourceNotFound)
	s.events("id-1")
}

func testPhases(s *suite) {
	for i, phase := range broker.Phases() {
		if got := s.in(ids(i), phase).Phase(); got != phase {
			s.Errorf("stored %s, read %s", phase, got)
		}
	}
}

func testUpdatePhase(s *suite) {
	want := s.create("id-1", "web").State()
	s.ok(s.Repository.BindToken(s.Context(), "id-1", "", "t1"))
	want.TokenID = "t1"

	// UpdatePhase writes phase and ConvergeStartedAt only.
	changed := state("id-1", "other")
	changed.Phase, changed.ConvergeStartedAt = broker.PhaseProvisioning, start.Add(time.Hour)
	changed.Parameters, changed.TokenID = nil, ""
	s.ok(s.Repository.UpdatePhase(s.Context(), broker.PhasePending, s.restore(changed)))
	want.Phase, want.ConvergeStartedAt = changed.Phase, changed.ConvergeStartedAt
	s.stored(want)

	// A write over another phase changes nothing.
	changed.Phase = broker.PhaseReady
	s.refused(s.Repository.UpdatePhase(s.Context(), broker.PhasePending, s.restore(changed)), broker.ErrPhaseConflict)
	s.stored(want)
	s.events("id-1", broker.EventRequested)

	// A round that read before the deletion does not lead out of teardown.
	deleting, _ := s.read("id-1").RequestDeletion(start)
	s.ok(s.Repository.RecordDeletionIntent(s.Context(), deleting))
	s.refused(s.Repository.UpdatePhase(s.Context(), broker.PhaseProvisioning, s.restore(changed)), broker.ErrPhaseConflict)
	want = deleting.State()
	s.stored(want)
}

func testBindToken(s *suite) {
	want := s.create("id-1", "web").State()
	bind := func(previous, token broker.BootstrapTokenID) error {
		return s.Repository.BindToken(s.Context(), "id-1", previous, token)
	}
	s.refused(bind("t0", "t1"), broker.ErrPhaseConflict)
	s.ok(bind("", "t1"))
	s.refused(bind("", "t2"), broker.ErrPhaseConflict)
	s.ok(bind("t1", "t2"))
	want.TokenID = "t2"
	s.stored(want)
}

func testBindAfterDeletion(s *suite) {
	for i, phase := range teardown {
		r := s.in(ids(i), phase)
		s.refused(s.Repository.BindToken(s.Context(), r.ID(), "", "t1"), broker.ErrPhaseConflict)
		s.stored(r.State())
	}
}

func testRecordDeletion(s *suite) {
	for i, phase := range broker.Phases() {
		r := s.in(ids(i), phase)
		if slices.Contains(teardown, phase) {
			// A second request with a later time changes nothing.
			again := r.State()
			again.Phase, again.DeletionRequestedAt = broker.PhaseDeregistering, start.Add(24*time.Hour)
			s.ok(s.Repository.RecordDeletionIntent(s.Context(), s.restore(again)))
			s.stored(r.State())
		} else {
			deleting, _ := r.RequestDeletion(start.Add(time.Hour))
			s.ok(s.Repository.RecordDeletionIntent(s.Context(), deleting))
			s.stored(deleting.State())
		}
		s.events(ids(i), broker.EventRequested, broker.EventDeleting)
	}
}

func testEmit(s *suite) {
	r := s.in("id-1", broker.PhaseEnrolling)
	s.refused(s.Emitter.Emit(s.Context(), broker.PhasePending, ready(r)), broker.ErrPhaseConflict)
	s.events("id-1", broker.EventRequested)
	s.ok(s.Emitter.Emit(s.Context(), broker.PhaseEnrolling, ready(r)))
	s.stored(r.State())
	failed := broker.ProvisionedResourceFailed{EventHead: head(r, broker.EventFailed), Reason: "quota"}
	s.ok(s.Emitter.Emit(s.Context(), broker.PhaseEnrolling, failed))
	deleting, _ := r.RequestDeletion(start)
	s.ok(s.Repository.RecordDeletionIntent(s.Context(), deleting))
	deleted := broker.ProvisionedResourceDeleted{EventHead: head(r, broker.EventDeleted)}
	s.ok(s.Emitter.Emit(s.Context(), broker.PhaseDeregistering, deleted))
	s.events("id-1", EventTypes...)
}

func testEmitTwice(s *suite) {
	r := s.in("id-1", broker.PhaseEnrolling)
	s.ok(s.Emitter.Emit(s.Context(), broker.PhaseEnrolling, ready(r)))
	s.ok(s.Emitter.Emit(s.Context(), broker.PhaseEnrolling, ready(r)))
	s.events("id-1", broker.EventRequested, broker.EventReady)
}

func testDeletionRace(s *suite) {
	s.create("id-1", "web")
	errs := race(s.Context(), 8, func(ctx context.Context, i int) error {
		r, err := s.Repository.Get(ctx, "id-1")
		if err != nil {
			return err
		}
		r, _ = r.RequestDeletion(start.Add(time.Duration(i) * time.Second))
		return s.Repository.RecordDeletionIntent(ctx, r)
	})
	if n := s.winners(errs, nil); n != len(errs) {
		s.Errorf("%d of %d deletions were accepted", n, len(errs))
	}
	s.events("id-1", broker.EventRequested, broker.EventDeleting)
}

func testUpdateRace(s *suite) {
	s.create("id-1", "web")
	phases := []broker.ProvisionedResourcePhase{broker.PhaseProvisioning, broker.PhaseEnrolling, broker.PhaseReady, broker.PhaseFailed}
	errs := race(s.Context(), len(phases), func(ctx context.Context, i int) error {
		st := state("id-1", "web")
		st.Phase = phases[i]
		return s.Repository.UpdatePhase(ctx, broker.PhasePending, s.restore(st))
	})
	if n := s.winners(errs, broker.ErrPhaseConflict); n != 1 {
		s.Errorf("%d updates over one phase were written", n)
	}
}

func testBindRace(s *suite) {
	s.create("id-1", "web")
	errs := race(s.Context(), 8, func(ctx context.Context, i int) error {
		return s.Repository.BindToken(ctx, "id-1", "", broker.BootstrapTokenID(ids(i)))
	})
	if n := s.winners(errs, broker.ErrPhaseConflict); n != 1 {
		s.Errorf("%d tokens were bound over none", n)
	}
}

// testEmitRace: in either order, no Ready event follows a Deleting event.
func testEmitRace(s *suite) {
	for i := range 10 {
		r := s.in(ids(i), broker.PhaseEnrolling)
		errs := race(s.Context(), 2, func(ctx context.Context, who int) error {
			if who == 0 {
				return s.Emitter.Emit(ctx, broker.PhaseEnrolling, ready(r))
			}
			deleting, _ := r.RequestDeletion(start)
			return s.Repository.RecordDeletionIntent(ctx, deleting)
		})
		if s.ok(errs[1]); errs[0] == nil {
			s.events(ids(i), broker.EventRequested, broker.EventReady, broker.EventDeleting)
			continue
		}
		s.refused(errs[0], broker.ErrPhaseConflict)
		s.events(ids(i), broker.EventRequested, broker.EventDeleting)
	}
}
