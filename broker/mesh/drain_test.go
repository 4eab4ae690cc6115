package mesh

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// left checks that a node has left the mesh, and that its token records how.
func (w *world) left(n enrolled, how string) {
	w.Helper()
	if w.registered(n.token) || w.object(n.Name) != nil {
		w.Errorf("node %s is still there", n.Name)
	}
	if shown := w.shown(n.token); shown.LeftAt == nil || !strings.Contains(shown.LeftHow, how) {
		w.Errorf("node %s left %q; want %q", n.Name, shown.LeftHow, how)
	}
	e := w.event(n)
	warned := e.Type == corev1.EventTypeWarning
	if !strings.Contains(e.Message, how) || warned != (how != howDrained) || string(e.InvolvedObject.UID) != n.UID {
		w.Errorf("event of node %s: %s %s", n.Name, e.Type, e.Message)
	}
	_, err := w.mesh.Authenticate(w.Context(), n.credential)
	w.denied("the credential of a node that left", err, v1alpha1.ReasonUnknownNode)
	_, err = w.mesh.Heartbeat(w.Context(), n.Node)
	w.denied("a heartbeat of a node that left", err, v1alpha1.ReasonUnknownNode)
	_, err = w.mesh.Peers(w.Context(), n.Node, 0, 0)
	w.denied("the peers of a node that left", err, v1alpha1.ReasonUnknownNode)
	w.denied("the word of a node that left", w.mesh.Drained(w.Context(), n.Node), v1alpha1.ReasonUnknownNode)
	w.denied("the leave of a node that left", w.mesh.Leave(w.Context(), n.Node), v1alpha1.ReasonUnknownNode)
	w.check()
}

// event finds the Event about a node.
func (w *world) event(n enrolled) *corev1.Event {
	w.Helper()
	listing, err := w.store.List(w.Context(), store.ListRequest{Kind: "events", Namespace: n.Project})
	if err != nil {
		w.Fatal(err)
	}
	for listing.Next() {
		e := &corev1.Event{}
		if err := object.DecodeInto(listing.Object().Body, "", corev1.SchemeGroupVersion.WithKind("Event"), e); err != nil {
			w.Fatal(err)
		}
		if string(e.InvolvedObject.UID) == n.UID && e.InvolvedObject.Kind == "MeshNode" {
			return e
		}
	}
	w.Fatalf("there is no event about node %s: %v", n.Name, listing.Err())
	return nil
}

// TestDrain: a client deletes the MeshNode. The node and its peers are told; the
// node acknowledges its drain; the object is removed.
func TestDrain(t *testing.T) {
	each(t, func(w *world) {
		n, peer := w.enrol("alpha"), w.enrol("beta")
		beat, err := w.mesh.Heartbeat(t.Context(), n.Node)
		if err != nil || beat.Self.Draining || beat.HeartbeatSeconds != 10 {
			t.Errorf("heartbeat: %+v, %v", beat, err)
		}
		w.denied("an acknowledgement without a drain", w.mesh.Drained(t.Context(), n.Node), v1alpha1.ReasonNotDraining)
		w.delete("alpha")
		for _, reviewed := range []bool{false, true} {
			if reviewed {
				w.review()
			}
			beat, err = w.mesh.Heartbeat(t.Context(), n.Node)
			if err != nil || beat.Self != (v1alpha1.Self{Draining: true, DrainSeconds: 30}) {
				t.Errorf("heartbeat while draining: %+v, %v", beat, err)
			}
			seen, err := w.mesh.Peers(t.Context(), peer.Node, 0, 0)
			if err != nil || len(seen.Peers) != 1 || seen.Peers[0] != (v1alpha1.Peer{UID: n.UID, Name: "alpha", Address: "192.0.2.1:65535", Phase: v1alpha1.PhaseDraining}) {
				t.Errorf("peers: %+v, %v", seen, err)
			}
			w.check()
		}
		o := w.object("alpha")
		if o.Status.Phase != v1alpha1.PhaseDraining || !o.Status.DrainDeadline.Time.Equal(w.clock.Now().Add(30*time.Second)) {
			t.Errorf("status: %+v", o.Status)
		}
		w.denied("drained", w.mesh.Drained(t.Context(), n.Node), "")
		w.left(n, howDrained)
		w.review()
		seen, err := w.mesh.Peers(t.Context(), peer.Node, 0, 0)
		if err != nil || len(seen.Peers) != 0 || seen.Self.Draining {
			t.Errorf("peers after it left: %+v, %v", seen, err)
		}
		w.enrol("alpha") // the name is free
	})
}

// TestDrainTimeout: a node that does not acknowledge its drain is removed at the
// deadline, and its token and an Event say why.
func TestDrainTimeout(t *testing.T) {
	each(t, func(w *world) {
		silent, busy := w.enrol("silent"), w.enrol("busy")
		w.clock.Advance(35 * time.Second)
		if _, err := w.mesh.Heartbeat(t.Context(), busy.Node); err != nil {
			t.Fatal(err)
		}
		w.delete("silent")
		w.delete("busy")
		w.review()
		w.clock.Advance(29 * time.Second)
		w.review()
		if !w.registered(silent.token) || !w.registered(busy.token) {
			t.Error("a node was removed before its time")
		}
		w.clock.Advance(time.Second)
		w.review()
		w.left(silent, "removed without acknowledgement after 30s: unreachable, no heartbeat since "+silent.token.CreatedAt.Format(time.RFC3339))
		w.left(busy, "removed without acknowledgement after 30s: it sends heartbeats, but did not finish in time")
	})
}

// TestUnreachable: a node without heartbeats is marked unreachable once; a heartbeat
// makes it ready again.
func TestUnreachable(t *testing.T) {
	each(t, func(w *world) {
		n := w.enrol("alpha")
		phase := func(want v1alpha1.Phase, ready bool) {
			t.Helper()
			w.review()
			o := w.object("alpha")
			if o.Status.Phase != want || meta.IsStatusConditionTrue(o.Status.Conditions, "Ready") != ready {
				t.Errorf("status %+v, want %s", o.Status, want)
			}
			w.check()
		}
		beat := func() {
			t.Helper()
			if _, err := w.mesh.Heartbeat(t.Context(), n.Node); err != nil {
				t.Fatal(err)
			}
		}
		w.clock.Advance(30 * time.Second)
		beat()
		w.clock.Advance(30 * time.Second)
		phase(v1alpha1.PhaseReady, true)
		w.clock.Advance(10 * time.Second)
		phase(v1alpha1.PhaseUnreachable, false)
		seen := w.clock.Now().Add(-40 * time.Second).UTC().Format(time.RFC3339)
		if c := meta.FindStatusCondition(w.object("alpha").Status.Conditions, "Ready"); c.Message != "no heartbeat since "+seen {
			t.Errorf("message %q, want the time %s", c.Message, seen)
		}
		revision := w.store.Revision()
		w.clock.Advance(time.Hour)
		phase(v1alpha1.PhaseUnreachable, false)
		if got := w.store.Revision(); got != revision {
			t.Error("nothing changed, and something was written")
		}
		beat()
		phase(v1alpha1.PhaseReady, true)
		w.clock.Advance(40 * time.Second)
		phase(v1alpha1.PhaseUnreachable, false)
	})
}

// TestForeignFinalizer: the finalizer of another controller keeps the object; the
// node leaves all the same.
func TestForeignFinalizer(t *testing.T) {
	each(t, func(w *world) {
		n := w.enrol("alpha")
		w.update("alpha", func(o *v1alpha1.MeshNode) { o.Finalizers = append(o.Finalizers, "example.com/hold") })
		w.denied("leave", w.mesh.Leave(t.Context(), n.Node), "")
		w.denied("drained", w.mesh.Drained(t.Context(), n.Node), "")
		o := w.object("alpha")
		if w.registered(n.token) || o == nil || o.Status.Phase != v1alpha1.PhaseLeft || len(o.Finalizers) != 1 {
			t.Errorf("object: %+v", o)
		}
		other := w.mint()
		_, err := w.mesh.Enrol(t.Context(), request(other.Text, "alpha"))
		w.denied("the name of an object that lingers", err, v1alpha1.ReasonNameTaken)
		w.review()
		w.update("alpha", func(o *v1alpha1.MeshNode) { o.Finalizers = nil })
		w.left(n, howDrained)
		w.enrolBy(other, "alpha")
	})
}

// TestForced: a client that removes our finalizer removes the node.
func TestForced(t *testing.T) {
	each(t, func(w *world) {
		n := w.enrol("alpha")
		w.delete("alpha")
		w.update("alpha", func(o *v1alpha1.MeshNode) { o.Finalizers = nil })
		if w.object("alpha") != nil || !w.registered(n.token) {
			t.Error("the object should be gone, and the row not yet")
		}
		_, err := w.mesh.Heartbeat(t.Context(), n.Node)
		w.denied("a heartbeat in between", err, v1alpha1.ReasonUnknownNode)
		w.review()
		w.left(n, howForced)
	})
}

// update changes an object as a client would.
func (w *world) update(name string, change func(*v1alpha1.MeshNode)) {
	w.Helper()
	key := object.Key{Kind: storage, Namespace: "shop", Name: name}
	old, err := w.store.Get(w.Context(), key)
	if err != nil {
		w.Fatal(err)
	}
	o, err := decodeNode(old.Body)
	if err != nil {
		w.Fatal(err)
	}
	change(o)
	body, err := object.Encode(o)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.store.Update(w.Context(), store.UpdateRequest{
		Key: key, IfRevision: old.Revision, Meta: o.ObjectMeta, Body: body,
		Remove: lifecycle.RemoveNow(body, o.ObjectMeta, lifecycle.Rules{}),
	}); err != nil {
		w.Fatal(err)
	}
}
