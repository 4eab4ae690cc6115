// Package definition keeps the set of kinds up to date with the stored
// CustomResourceDefinitions: it accepts their names, establishes them, serves the
// kinds that they declare, and deletes all objects of a kind before its definition
// is removed.
//
// kind/custom decides the status of a definition, without I/O; this package follows
// the definitions and writes the result. Every replica does so. All replicas write
// the same decision by compare-and-swap, so the order of the replicas does not
// matter.
package definition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Controller follows the definitions. Create it with New, call Load before serving,
// and then Run.
type Controller struct {
	store *store.Store
	kinds *kind.Registry
	crds  *kind.Version // the CustomResourceDefinition kind itself
	log   *slog.Logger
	now   func() time.Time

	convert custom.NewConverter // nil if no webhook is called

	// reserved stand for the built-in kinds, whose names no definition may take.
	// builtin are their storage names, so that no definition changes their objects.
	// Both are constant after New.
	reserved []*apiextensionsv1.CustomResourceDefinition
	builtin  map[string]bool

	// compiled is what the schemas of all kinds share.
	compiled *custom.Cache

	// Owned by Load, then by Run.
	revision int64
	known    map[string]*definition // by name
	changed  map[string]*kind.Kind  // by storage name; what publish gives to kinds
	due      map[string]bool        // groups that settle has to look at

	cleaning sync.WaitGroup
}

// definition is a stored CustomResourceDefinition and the state of its kind.
type definition struct {
	crd      *apiextensionsv1.CustomResourceDefinition // without its schemas
	object   object.Object                             // without its body
	served   servedAs
	kind     bool // a kind is registered for it
	cleaning bool
}

// servedAs holds what the served kind depends on. Most changes of a definition
// change only its status and leave this equal.
type servedAs struct {
	uid         types.UID
	generation  int64
	names       string
	established bool
	terminating bool
}

// compiledLimit is how many bytes the compiled schemas of all kinds may take, about: those of a
// hundred kinds with 125 fields.
const compiledLimit = 64 << 20

// settleRetryDelay is the delay before a failed status write is retried.
const settleRetryDelay = time.Second

// New creates a controller. kinds holds the built-in kinds; definitions is the kind
// CustomResourceDefinition among them. convert builds the converters for conversion
// webhooks; it is called when the first object is converted.
func New(s *store.Store, kinds *kind.Registry, definitions *kind.Kind, convert custom.NewConverter, log *slog.Logger) *Controller {
	c := &Controller{
		convert: convert, store: s, kinds: kinds, crds: definitions.Versions[0], log: log, now: time.Now,
		known: map[string]*definition{}, builtin: map[string]bool{},
		compiled: custom.NewCache(compiledLimit), changed: map[string]*kind.Kind{}, due: map[string]bool{},
	}
	for _, k := range kinds.Snapshot().Kinds {
		c.reserved = append(c.reserved, custom.Reserve(k))
		c.builtin[kind.StorageName(k.Group, k.Plural)] = true
	}
	return c
}

// Load reads all definitions and serves the established ones. It drops known
// definitions that are no longer stored.
func (c *Controller) Load(ctx context.Context) error {
	listing, err := c.store.List(ctx, store.ListRequest{Kind: c.crds.Kind.Storage})
	if err != nil {
		return fmt.Errorf("list definitions: %w", err)
	}
	c.revision = listing.Revision()
	found := map[string]bool{}
	for listing.Next() {
		found[listing.Object().Name] = true
		c.learn(listing.Object())
	}
	if err := listing.Err(); err != nil {
		return fmt.Errorf("list definitions: %w", err)
	}
	for name := range c.known {
		if !found[name] {
			c.forget(name)
		}
	}
	c.publish()
	return nil
}

// publish serves the changed kinds, all at once: each change of the set costs time for every kind.
func (c *Controller) publish() {
	if len(c.changed) > 0 {
		c.kinds.Replace(c.changed)
		c.changed = map[string]*kind.Kind{}
	}
}

// Run follows the definitions until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	defer c.cleaning.Wait()
	return c.store.Keep(ctx, c.log, "definitions cannot be followed", func(int64) error {
		err := c.follow(ctx)
		if object.Is(err, object.Expired) {
			err = c.Load(ctx) // compaction overtook the watch: start again from the current state
		}
		return err
	})
}

func (c *Controller) follow(ctx context.Context) error {
	watcher, err := c.store.Watch(ctx, store.WatchRequest{Kind: c.crds.Kind.Storage, From: c.revision})
	if err != nil {
		return fmt.Errorf("watch definitions: %w", err)
	}
	defer watcher.Close()
	settled := c.settle(ctx)
	for {
		events, upTo, err := next(ctx, watcher, settled)
		if err != nil {
			return fmt.Errorf("watch definitions: %w", err)
		}
		for _, e := range events {
			if e.Type == store.Removed {
				c.forget(e.Object.Name)
			} else {
				c.learn(e.Object)
			}
		}
		c.publish()
		c.revision = upTo
		if len(events) > 0 || !settled {
			settled = c.settle(ctx)
		}
	}
}

// next waits for events. While something is left to settle, it waits at most
// settleRetryDelay, so that the write is retried.
func next(ctx context.Context, watcher *store.Watcher, settled bool) ([]*store.Event, int64, error) {
	if settled {
		return watcher.Next(ctx)
	}
	short, cancel := context.WithTimeout(ctx, settleRetryDelay)
	defer cancel()
	events, upTo, err := watcher.Next(short)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return events, upTo, err
}

// learn stores a definition in c.known and serves it if it is established.
func (c *Controller) learn(o object.Object) {
	crd, err := custom.Header(o.Body, o.ResourceVersion())
	if err != nil {
		c.log.Error("definition cannot be read", "name", o.Name, "error", err)
		return
	}
	d := c.known[o.Name]
	if d != nil && d.crd.UID != crd.UID {
		c.forget(o.Name) // it was deleted and created again under this name
		d = nil
	}
	if d == nil {
		d = &definition{}
		c.known[o.Name] = d
	}
	body := o.Body
	o.Body = nil
	d.crd, d.object = crd, o
	c.due[crd.Spec.Group] = true
	c.serve(d, body)
}

// serve makes the kind that the definition declares, if it changed.
func (c *Controller) serve(d *definition, body []byte) {
	now := servedAs{
		uid: d.crd.UID, generation: d.crd.Generation, names: fmt.Sprintf("%v", d.crd.Status.AcceptedNames),
		established: custom.Established(d.crd), terminating: d.crd.DeletionTimestamp != nil,
	}
	if now == d.served {
		return
	}
	d.served = now
	if !now.established || c.builtin[storageName(d.crd)] {
		c.withdraw(d)
		return
	}
	k, err := custom.Stored(d.crd, body, c.compiled, c.convert)
	if err != nil {
		c.log.Error("definition cannot be served", "name", d.crd.Name, "error", err)
		return
	}
	c.changed[k.Storage] = k
	d.kind = true
}

// withdraw stops serving a definition. It does nothing for a definition that was
// never served: the kind with its name may belong to another.
func (c *Controller) withdraw(d *definition) {
	if d.kind {
		c.changed[storageName(d.crd)] = nil
		d.kind = false
	}
}

func (c *Controller) forget(name string) {
	if d := c.known[name]; d != nil {
		c.withdraw(d)
		c.due[d.crd.Spec.Group] = true
		delete(c.known, name)
	}
}

// settle writes the status of every definition whose status differs, and starts the
// cleaning of those that are being deleted. It returns false if a write failed. It looks at the
// groups in which a definition changed: names are taken within a group.
//
// If two definitions want one name, the one with the lower revision gets it. All
// replicas see the same revisions in the same order, so they decide alike.
func (c *Controller) settle(ctx context.Context) bool {
	all := map[string][]*apiextensionsv1.CustomResourceDefinition{} // by group
	var order []*definition
	for _, d := range c.known {
		if group := d.crd.Spec.Group; c.due[group] {
			all[group] = append(all[group], d.crd)
			order = append(order, d)
		}
	}
	for _, r := range c.reserved {
		all[r.Spec.Group] = append(all[r.Spec.Group], r)
	}
	clear(c.due)
	slices.SortFunc(order, func(a, b *definition) int { return cmp.Compare(a.object.Revision, b.object.Revision) })
	settled := true
	for _, d := range order {
		status, differs := custom.Accept(d.crd, all[d.crd.Spec.Group], c.now())
		if differs {
			before := d.crd.Status
			if err := c.writeStatus(ctx, d, status); err != nil {
				settled = false
				defer func() { d.crd.Status, c.due[d.crd.Spec.Group] = before, true }() // so that the next settle retries
				if ctx.Err() == nil {
					c.log.Error("definition's status cannot be written", "name", d.crd.Name, "error", err)
				}
			}
			// The following definitions are checked against the names of this one.
			d.crd.Status = status
		}
		held := lifecycle.GuardOf(&d.crd.ObjectMeta).Held
		if d.crd.DeletionTimestamp != nil && !held && !d.cleaning && hasFinalizer(d.crd) {
			d.cleaning = true
			crd := d.crd.DeepCopy()
			clean := task.Loop("definition-cleaning", func(ctx context.Context) { c.clean(ctx, crd) })
			c.cleaning.Go(func() { _ = task.Run(ctx, c.log, clean) }) // it cannot fail
		}
	}
	return settled
}

// writeStatus swaps in the status. It ignores a lost swap: the other write causes an
// event, and settle runs again.
func (c *Controller) writeStatus(ctx context.Context, d *definition, status apiextensionsv1.CustomResourceDefinitionStatus) error {
	o, err := c.store.Get(ctx, d.object.Key)
	if err == nil && o.Revision == d.object.Revision {
		var current *apiextensionsv1.CustomResourceDefinition
		if current, err = c.decode(o); err != nil {
			return err
		}
		changed := current.DeepCopy()
		changed.Status = status
		err = c.write(ctx, custom.OwnStatus(current, changed), o.Revision, false)
	}
	if object.Is(err, object.Conflict) || object.Is(err, object.NotFound) {
		return nil
	}
	return err
}

func (c *Controller) decode(o object.Object) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, object.DecodeInto(o.Body, o.ResourceVersion(), c.crds.GVK, crd)
}

func (c *Controller) write(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, ifRevision int64, remove bool) error {
	body, err := c.crds.Encode(crd)
	if err != nil {
		return err
	}
	_, err = c.store.Update(ctx, store.UpdateRequest{
		Key: object.Key{Kind: c.crds.Kind.Storage, Name: crd.Name}, IfRevision: ifRevision,
		Meta: crd.ObjectMeta, Body: body, Remove: remove,
	})
	return err
}

func storageName(crd *apiextensionsv1.CustomResourceDefinition) string {
	return kind.StorageName(crd.Spec.Group, crd.Spec.Names.Plural)
}

// errChanged means that the definition changed meanwhile and must be read again.
var errChanged = errors.New("changed meanwhile")

// cleanupFinalizer keeps a definition until its objects are gone.
const cleanupFinalizer = apiextensionsv1.CustomResourceCleanupFinalizer

func hasFinalizer(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.Contains(crd.Finalizers, cleanupFinalizer)
}

// clean deletes the objects of a definition that is being deleted, waits until their
// finalizers are removed, and then removes the definition's own finalizer. A crash is
// harmless: the finalizer stays, and the next start cleans again. New objects cannot
// appear meanwhile: creates are refused as soon as a replica sees that the definition
// is terminating, and the last check and the removal of the finalizer are repeated if
// the definition changed in between.
func (c *Controller) clean(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) {
	wait := 10 * time.Millisecond
	for {
		left, err := c.deleteInstances(ctx, storageName(crd), crd.UID)
		if err == nil && left == 0 {
			err = c.release(ctx, crd)
			if err == nil {
				return
			}
		}
		if err != nil && !errors.Is(err, errChanged) && ctx.Err() == nil {
			c.log.Error("definition cannot be emptied yet", "name", crd.Name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			wait = min(wait*2, time.Second)
		}
	}
}

// deleteInstances deletes every object, in the definition's cascade, and returns how
// many it found. A definition with the name of a built-in kind is never served: the
// objects under that name are not its own.
func (c *Controller) deleteInstances(ctx context.Context, storage string, definition types.UID) (int, error) {
	if c.builtin[storage] {
		return 0, nil
	}
	var keys []object.Key
	listing, err := c.store.List(ctx, store.ListRequest{Kind: storage})
	if err != nil {
		return 0, err
	}
	for listing.Next() {
		keys = append(keys, listing.Object().Key)
	}
	err = listing.Err()
	if err != nil || len(keys) == 0 {
		return len(keys), err
	}
	origin, err := c.store.OriginOf(ctx, definition)
	background := metav1.DeletePropagationBackground
	for _, key := range keys {
		if err != nil {
			return len(keys), err
		}
		_, err = c.store.Delete(ctx, store.DeleteRequest{
			Key: key, Options: metav1.DeleteOptions{PropagationPolicy: &background},
			Actor: "system:definition-controller", Cascade: origin.Cascade, Requester: origin.Requester, RequestID: origin.RequestID,
		})
		if object.Is(err, object.NotFound) {
			err = nil
		}
	}
	return len(keys), err
}

// release removes our finalizer. If no other is left, it removes the definition.
func (c *Controller) release(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	o, err := c.store.Get(ctx, object.Key{Kind: c.crds.Kind.Storage, Name: crd.Name})
	if object.Is(err, object.NotFound) || err == nil && o.UID != crd.UID {
		return nil
	}
	if err != nil {
		return err
	}
	current, err := c.decode(o)
	if err != nil {
		return err
	}
	current.Finalizers = slices.DeleteFunc(current.Finalizers, func(f string) bool { return f == cleanupFinalizer })
	err = c.write(ctx, current, o.Revision, len(current.Finalizers) == 0)
	if object.Is(err, object.Conflict) {
		return errChanged // the definition changed: check again
	}
	return err
}
