package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/exeunt/exeunt/test/controllers"
	"github.com/exeunt/exeunt/test/crossplane"
)

// shown leaves out the ConfigMap that the server keeps in every namespace.
var shown = metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"}

// watched are all kinds of the demo.
var watched = []schema.GroupVersionResource{
	controllers.Apps,
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Version: "v1", Resource: "replicasets"},
	{Version: "v1", Resource: "pods"},
	{Version: "v1", Resource: "secrets"},
	{Version: "v1", Resource: "configmaps"},
	{Group: "provisioning.exeunt.dev", Version: "v1alpha1", Resource: "provisionedresources"},
	{Group: "mesh.exeunt.dev", Version: "v1alpha1", Resource: "meshnodes"},
	{Group: "registry.exeunt.dev", Version: "v1", Resource: "repositories"},
	crossplane.XNodes, crossplane.Machines, crossplane.ProviderConfigs,
}

// Event is what a watch delivered for an object.
type Event struct {
	At       time.Duration // since the beginning of the demo
	Verb     watch.EventType
	Revision int64 // orders the events of all kinds
	Object   *unstructured.Unstructured
}

// Name is KIND NAME.
func (e Event) Name() string { return e.Object.GetKind() + " " + e.Object.GetName() }

// Deleting reports whether the object has a deletionTimestamp.
func (e Event) Deleting() bool { return e.Object.GetDeletionTimestamp() != nil }

// recorder keeps all events and prints them as they come.
type recorder struct {
	*printer

	mu     sync.Mutex
	events []Event // guarded by mu

	printing sync.Mutex
	printed  int               // how many were printed; guarded by printing
	known    map[string]string // the last printed state by uid; guarded by printing
}

// record watches everything in the namespace until ctx ends.
func record(ctx context.Context, s *stage) (*recorder, error) {
	r := &recorder{printer: s.printer, known: map[string]string{}}
	for _, resource := range watched {
		w, err := s.objects.Resource(resource).Namespace(namespace).Watch(ctx, shown)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource.Resource, err)
		}
		s.play(ctx, "watch "+resource.Resource, func(ctx context.Context) error { return r.follow(ctx, w) })
	}
	s.before = r.catchUp
	s.play(ctx, "narrator", r.narrate)
	return r, nil
}

func (r *recorder) follow(ctx context.Context, w watch.Interface) error {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.ResultChan():
			o, isObject := e.Object.(*unstructured.Unstructured)
			if !ok || !isObject || e.Type == watch.Error {
				return errors.New("ended early")
			}
			revision, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
			if err != nil {
				return err
			}
			r.mu.Lock()
			r.events = append(r.events, Event{At: time.Since(r.begin), Verb: e.Type, Revision: revision, Object: o})
			r.mu.Unlock()
		}
	}
}

// all returns every event so far, in revision order.
func (r *recorder) all() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := slices.Clone(r.events)
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.Revision, b.Revision) })
	return events
}

// mark returns the current position in the record; find takes it.
func (r *recorder) mark() int64 {
	all := r.all()
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].Revision
}

// find waits for an event after a mark.
func (r *recorder) find(ctx context.Context, mark int64, what string, match func(Event) bool) (found Event, err error) {
	err = until(ctx, what, func() error {
		for _, e := range r.all() {
			if e.Revision > mark && match(e) {
				found = e
				return nil
			}
		}
		return errors.New("it has not happened")
	})
	return found, err
}

// narrate prints events as they come.
func (r *recorder) narrate(ctx context.Context) error {
	ticker := time.NewTicker(150 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			r.catchUp()
		}
	}
}

// catchUp prints the events that have arrived. Watches of several kinds are not ordered
// among each other, so it sorts the events of a short interval first.
func (r *recorder) catchUp() {
	r.printing.Lock()
	defer r.printing.Unlock()
	r.mu.Lock()
	fresh := slices.Clone(r.events[r.printed:])
	r.printed = len(r.events)
	r.mu.Unlock()
	slices.SortStableFunc(fresh, func(a, b Event) int { return cmp.Compare(a.Revision, b.Revision) })
	for _, e := range fresh {
		r.printChange(e)
	}
}

// printChange prints what changed about an object, if anything did.
func (r *recorder) printChange(e Event) {
	key := string(e.Object.GetUID())
	says := describe(e)
	if says == r.known[key] {
		return
	}
	first := r.known[key] == ""
	r.known[key] = says
	if quiet := e.Object.GetKind() == "Secret" || e.Object.GetKind() == "ConfigMap"; quiet && !(e.Verb == watch.Deleted && !first) {
		return
	}
	r.lineAt(e.At, "%-42s %s", e.Name(), says)
}

// describe says in a few words what state an object is in.
func describe(e Event) string {
	phase, _, _ := unstructured.NestedString(e.Object.Object, "status", "phase")
	grace := e.Object.GetDeletionGracePeriodSeconds()
	switch {
	case e.Verb == watch.Deleted:
		return "is gone"
	case e.Object.GetKind() == "ProvisionedResource" || e.Object.GetKind() == "MeshNode":
		return phaseWords(phase, e.Deleting())
	case e.Deleting() && grace != nil && *grace > 0:
		return fmt.Sprintf("is asked to end, and has %d s", *grace)
	case e.Deleting() && slices.Contains(e.Object.GetFinalizers(), metav1.FinalizerDeleteDependents):
		return "is to go, after what it owns"
	case e.Deleting():
		return "is to go"
	case phase == "Pending" || phase == "":
		return "is there"
	}
	return phase
}

func phaseWords(phase string, deleting bool) string {
	words := map[string]string{
		"":               "is there",
		"Deregistering":  "Deregistering: the node leaves first",
		"Deprovisioning": "Deprovisioning: now the substrate",
		"Draining":       "Draining: takes no more connections, finishes those it has",
	}[phase]
	switch {
	case words != "":
		return words
	case deleting && phase == "Ready":
		return "is to go"
	}
	return phase
}
