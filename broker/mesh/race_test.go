package mesh

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// TestEnrolAtOnce: of many concurrent enrolments with one token, on two replicas, one
// succeeds.
func TestEnrolAtOnce(t *testing.T) {
	each(t, func(w *world) {
		token, meshes := w.mint(), []*Mesh{w.mesh, w.replica()}
		var tries []func() error
		for i := range 8 {
			tries = append(tries, func() error {
				_, err := meshes[i%2].Enrol(t.Context(), request(token.Text, "node-"+string(rune('a'+i))))
				return err
			})
		}
		in := 0
		for i, err := range concurrently(tries...) {
			if err == nil {
				in++
				continue
			}
			w.denied("try "+string(rune('a'+i)), err, v1alpha1.ReasonTokenConsumed)
		}
		if in != 1 {
			t.Errorf("%d nodes came in by one token", in)
		}
		w.check()
	})
}

// TestEnrolOnStaleRead forces two enrolments by one token that have both read it
// as issued. The lock on the revision keeps Enrol from getting there; the row
// that consumeToken changes decides even without it. The second is refused, while
// the first node is registered and also after it has left.
func TestEnrolOnStaleRead(t *testing.T) {
	each(t, func(w *world) {
		other, token := w.replica(), w.mint()
		first, second := request(token.Text, "first"), request(token.Text, "second")
		read := func(m *Mesh, r v1alpha1.EnrolRequest) (a application) {
			if err := m.store.Transact(t.Context(), func(tx *store.Tx) (err error) {
				a, err = m.application(t.Context(), tx, token.ID, r)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return a
		}
		register := func(m *Mesh, a application) (n node, err error) {
			err = m.store.Transact(t.Context(), func(tx *store.Tx) error {
				var denial *Denial
				if n, denial, err = m.register(t.Context(), tx, a); denial != nil {
					return denial
				}
				return err
			})
			return n, err
		}
		a, b := read(w.mesh, first), read(other, second)
		n, err := register(w.mesh, a)
		w.denied("the first", err, "")
		_, err = register(other, b)
		w.denied("the second, while the first is registered", err, v1alpha1.ReasonTokenConsumed)
		node := Node{n.uid, n.project, n.name}
		w.denied("leave", w.mesh.Leave(t.Context(), node), "")
		w.denied("drained", w.mesh.Drained(t.Context(), node), "")
		_, err = register(other, b)
		w.denied("the second, after the first has left", err, v1alpha1.ReasonTokenConsumed)
		if w.object("second") != nil || w.shown(token).Node != "first" {
			t.Errorf("two nodes came in by one token: %+v", w.shown(token))
		}
		w.check()
	})
}

// TestEnrolSameNameAtOnce: two tokens, one name. The one that is refused keeps
// its token.
func TestEnrolSameNameAtOnce(t *testing.T) {
	each(t, func(w *world) {
		a, b, other := w.mint(), w.mint(), w.replica()
		errs := concurrently(
			func() error { _, err := w.mesh.Enrol(t.Context(), request(a.Text, "alpha")); return err },
			func() error { _, err := other.Enrol(t.Context(), request(b.Text, "alpha")); return err },
		)
		states := map[string]int{w.state(a): 1}
		states[w.state(b)]++
		if (errs[0] == nil) == (errs[1] == nil) || states[StateIssued] != 1 || states[StateConsumed] != 1 {
			t.Errorf("errors %v, states %v", errs, states)
		}
		w.denied("the other", errors.Join(errs...), v1alpha1.ReasonNameTaken)
		w.check()
	})
}

// TestBetweenProofAndTransaction: the enrolment sees every change of a token between
// the check of its secret and the transaction.
func TestBetweenProofAndTransaction(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *world, token v1alpha1.Token) error
		want string
	}{
		{"nothing", func(*world, v1alpha1.Token) error { return nil }, ""},
		{"revoked", func(w *world, token v1alpha1.Token) error {
			_, err := w.mesh.Revoke(w.Context(), token.ID)
			return err
		}, v1alpha1.ReasonTokenRevoked},
		{"consumed", func(w *world, token v1alpha1.Token) error {
			_, err := w.mesh.Enrol(w.Context(), request(token.Text, "other"))
			return err
		}, v1alpha1.ReasonTokenConsumed},
		{"expired", func(w *world, token v1alpha1.Token) error {
			w.clock.Advance(time.Hour)
			return nil
		}, v1alpha1.ReasonTokenExpired},
		{"replaced", func(w *world, token v1alpha1.Token) error {
			_, err := w.mesh.Mint(w.Context(), Order{Project: "shop", Resource: "r", TTL: time.Hour})
			return err
		}, v1alpha1.ReasonTokenRevoked},
		{"project gone", func(w *world, token v1alpha1.Token) error {
			_, err := w.store.Delete(w.Context(), store.DeleteRequest{Key: object.Key{Kind: "namespaces", Name: "shop"}})
			return err
		}, v1alpha1.ReasonTokenRevoked},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(w *world) {
				token := w.mintFor("r")
				r := request(token.Text, "alpha")
				id, err := w.mesh.prove(t.Context(), r.Token)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.do(w, token); err != nil {
					t.Fatal(err)
				}
				var denial *Denial
				err = w.store.Transact(t.Context(), func(tx *store.Tx) error {
					_, denial, err = w.mesh.enrol(t.Context(), tx, id, r)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if denial != nil {
					err = denial
				}
				w.denied("enrol", err, c.want)
				if came := w.object("alpha") != nil; came != (c.want == "") {
					t.Errorf("the node came in: %t", came)
				}
				w.check()
			})
		})
	}
}

// TestRevokeAgainstEnrol: after both calls the token is consumed and the node is
// registered, or it is revoked and there is no node, and both answers say so.
func TestRevokeAgainstEnrol(t *testing.T) {
	each(t, func(w *world) {
		other := w.replica()
		for range 5 {
			token := w.mint()
			var state string
			errs := concurrently(
				func() error { _, err := w.mesh.Enrol(t.Context(), request(token.Text, token.ID)); return err },
				func() (err error) {
					state, err = other.end(t.Context(), token.ID, StateRevoked)
					return err
				},
			)
			if errs[1] != nil {
				t.Fatal(errs[1])
			}
			want := ""
			if state == StateRevoked {
				want = v1alpha1.ReasonTokenRevoked
			}
			w.denied("enrol", errs[0], want)
			if w.registered(token) != (state == StateConsumed) || w.state(token) != state {
				t.Errorf("revoke was told %s, now %s; node %t", state, w.state(token), w.registered(token))
			}
		}
		w.check()
	})
}

// TestMintAtOnce: of many tokens that are minted at once for one resource, one is valid.
func TestMintAtOnce(t *testing.T) {
	each(t, func(w *world) {
		meshes := []*Mesh{w.mesh, w.replica()}
		tokens := make([]v1alpha1.Token, 6)
		var mints []func() error
		for i := range tokens {
			mints = append(mints, func() (err error) {
				tokens[i], err = meshes[i%2].Mint(t.Context(), Order{Project: "shop", Resource: "r", TTL: time.Hour})
				return err
			})
		}
		if err := errors.Join(concurrently(mints...)...); err != nil {
			t.Fatal(err)
		}
		usable := 0
		for _, token := range tokens {
			if w.state(token) == StateIssued {
				usable++
			}
		}
		if usable != 1 {
			t.Errorf("%d tokens can be used", usable)
		}
	})
}

// between makes an engine in which something happens after a review was claimed
// and before its transaction begins.
func (w *world) between(do func()) *review.Engine {
	w.Helper()
	once := do
	transact := func(ctx context.Context, fn func(*store.Tx) error) error {
		if once != nil {
			once()
			once = nil
		}
		return w.store.Transact(ctx, fn)
	}
	e, err := review.New(w.db, queue, w.mesh, transact, review.Options{Now: w.clock.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.Fatal(err)
	}
	return e
}

// TestWordAgainstDeadline: the node acknowledges its drain after the review at its
// deadline was claimed. Exactly one of the two removes the node.
func TestWordAgainstDeadline(t *testing.T) {
	each(t, func(w *world) {
		first := w.enrol("first")
		w.delete("first")
		w.review()
		w.clock.Advance(30 * time.Second)
		w.reviewBy(w.between(func() { w.denied("a word in time", w.mesh.Drained(t.Context(), first.Node), "") }))
		w.left(first, howDrained)

		late := w.enrol("late")
		w.delete("late")
		w.clock.Advance(30 * time.Second)
		w.review()
		w.denied("a word too late", w.mesh.Drained(t.Context(), late.Node), v1alpha1.ReasonUnknownNode)
		w.left(late, "did not finish in time")

		both := w.enrol("both")
		w.delete("both")
		w.clock.Advance(30 * time.Second)
		other := w.replica()
		errs := concurrently(
			func() error { return other.Drained(t.Context(), both.Node) },
			func() error { _, err := w.mesh.RunOne(t.Context()); return err },
		)
		if errs[1] != nil {
			t.Fatal(errs[1])
		}
		w.review()
		if errs[0] == nil {
			w.left(both, howDrained)
		} else {
			w.left(both, "did not finish in time")
		}
	})
}

// TestHeartbeatAgainstReview: a heartbeat arrives after the review that would mark
// the node unreachable was claimed, or after it read the row. The node ends up ready.
func TestHeartbeatAgainstReview(t *testing.T) {
	each(t, func(w *world) {
		n := w.enrol("alpha")
		beat := func() {
			t.Helper()
			if _, err := w.mesh.Heartbeat(t.Context(), n.Node); err != nil {
				t.Fatal(err)
			}
		}
		w.clock.Advance(40 * time.Second)
		w.reviewBy(w.between(beat))
		if got := w.object("alpha").Status.Phase; got != v1alpha1.PhaseReady {
			t.Errorf("heartbeat after the claim: %s", got)
		}
		w.clock.Advance(40 * time.Second)
		w.review()
		w.clock.Advance(time.Second)
		beat()
		w.reviewBy(w.between(beat)) // a heartbeat while a review is about to mark it
		w.review()
		if got := w.object("alpha").Status.Phase; got != v1alpha1.PhaseReady {
			t.Errorf("two heartbeats: %s", got)
		}
		w.check()
	})
}

// TestHeartbeatUnderWay: while a heartbeat is not yet committed, a review does not
// mark the node unreachable.
func TestHeartbeatUnderWay(t *testing.T) {
	each(t, func(w *world) {
		n := w.enrol("alpha")
		w.clock.Advance(40 * time.Second)
		err := w.store.Transact(t.Context(), func(tx *store.Tx) error {
			found, err := find(t.Context(), tx, n.UID)
			if err != nil {
				return err
			}
			var b sqldb.Batch // as if a heartbeat had arrived since
			b.Exec(seen, n.UID, w.clock.Now().UnixMilli())
			if err := tx.Send(t.Context(), &b); err != nil {
				return err
			}
			written, err := w.mesh.markReady(t.Context(), tx, found, false, w.clock.Now())
			if written {
				t.Error("a node with a fresh heartbeat is marked unreachable")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		tx, err := w.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(40 * time.Second)
		var b sqldb.Batch
		b.Exec(seen, n.UID, w.clock.Now().UnixMilli())
		if err := tx.Send(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		reviewed := make(chan error, 1)
		go func() {
			_, err := w.mesh.RunOne(context.Background())
			reviewed <- err
		}()
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-reviewed; err != nil {
			t.Fatal(err)
		}
		w.review()
		if got := w.object("alpha").Status.Phase; got != v1alpha1.PhaseReady {
			t.Errorf("after a heartbeat that was under way: %s", got)
		}
		w.check()
	})
}

// TestHeartbeatAgainstRemoval: a heartbeat that comes after the removal has
// deleted the row, and before it commits, waits and finds nothing. One that has
// written and not yet committed makes the removal wait.
func TestHeartbeatAgainstRemoval(t *testing.T) {
	each(t, func(w *world) {
		gone, heard := w.enrol("gone"), w.enrol("heard")
		w.delete("gone")
		w.delete("heard")
		other := w.replica()
		beat := make(chan error, 1)
		err := w.store.Transact(t.Context(), func(tx *store.Tx) error {
			found, err := find(t.Context(), tx, gone.UID)
			if err != nil {
				return err
			}
			if err := w.mesh.remove(t.Context(), tx, found, howDrained, w.clock.Now()); err != nil {
				return err
			}
			go func() {
				_, err := other.recordHeartbeat(context.Background(), gone.UID)
				beat <- err
			}()
			return tx.Flush()
		})
		if err != nil {
			t.Fatal(err)
		}
		w.denied("a heartbeat during the removal", <-beat, v1alpha1.ReasonUnknownNode)
		w.left(gone, howDrained)

		tx, err := w.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var b sqldb.Batch
		b.Exec(seen, heard.UID, w.clock.Now().UnixMilli())
		if err := tx.Send(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		word := make(chan error, 1)
		go func() { word <- other.Drained(context.Background(), heard.Node) }()
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.denied("a word during a heartbeat", <-word, "")
		w.left(heard, howDrained)
	})
}

// TestDeleteAgainstEnrolAgain: a node that is drained while its enrolment is
// repeated is drained.
func TestDeleteAgainstEnrolAgain(t *testing.T) {
	each(t, func(w *world) {
		r := request(w.mint().Text, "alpha")
		if _, err := w.mesh.Enrol(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		w.delete("alpha")
		if _, err := w.mesh.Enrol(t.Context(), r); err != nil {
			t.Errorf("the same request while the node drains: %v", err)
		}
		w.clock.Advance(30 * time.Second)
		w.review()
		if w.object("alpha") != nil {
			t.Error("the node is still there")
		}
		w.check()
	})
}
