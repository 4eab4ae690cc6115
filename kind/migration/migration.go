// Package migration carries out StorageVersionMigrations: it rewrites the objects of a
// resource that are not yet stored as the server would store them now, in the storage
// version of a custom kind for example.
//
// All progress is in the migration's status, so a migration goes on after a crash, on any
// replica. Every replica runs the controller: all writes are compare-and-swaps, and an object
// that another write changed meanwhile needs no migration. It writes stored bodies and asks
// no webhook but that of the conversion.
package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	// retryDelay is the time until the next try after an error.
	retryDelay = time.Second
	// unknownFor is how long a migration waits for its resource to be served. Then it fails.
	unknownFor = time.Minute
	// actor is the client that the archive and the log of changes name.
	actor = "system:storage-version-migrator"
)

// The reasons are those of kube-controller-manager.
const (
	runningReason   = "MigrationRunning"
	completedReason = "MigrationCompleted"
	succeededReason = "StorageVersionMigrationSucceeded"
	failedReason    = "StorageVersionMigrationFailed"
)

// Controller carries out migrations. Create it with New.
type Controller struct {
	store       *store.Store
	kinds       *kind.Registry
	version     *kind.Version // StorageVersionMigration
	definitions *kind.Version // CustomResourceDefinition
	log         *slog.Logger
	now         func() time.Time
}

// New creates a controller. kinds has StorageVersionMigration; definitions is the kind
// CustomResourceDefinition.
func New(s *store.Store, kinds *kind.Registry, definitions *kind.Kind, log *slog.Logger) (*Controller, error) {
	v, ok := kinds.Snapshot().Lookup(migrationv1.SchemeGroupVersion.WithResource("storageversionmigrations"))
	if !ok {
		return nil, errors.New("storage version migrations are not served")
	}
	return &Controller{store: s, kinds: kinds, version: v, definitions: definitions.Versions[0], log: log, now: time.Now}, nil
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		from := c.store.Revision()
		waiting, err := c.RunOne(ctx)
		if err != nil && ctx.Err() == nil {
			c.log.Warn("storage version migration; the next try is in a second", "error", err)
		}
		c.wait(ctx, from, waiting || err != nil)
	}
	return nil
}

// wait waits for a change of a migration after a revision, or for the next try.
func (c *Controller) wait(ctx context.Context, from int64, retry bool) {
	if retry {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, retryDelay)
		defer cancel()
	}
	w, err := c.store.Watch(ctx, store.WatchRequest{Kind: c.version.Kind.Storage, From: from})
	if err != nil { // compacted, or the store stops: look again
		task.Sleep(ctx, retryDelay)
		return
	}
	defer w.Close()
	for {
		if events, _, err := w.Next(ctx); err != nil || len(events) > 0 {
			return
		}
	}
}

// migration is a stored StorageVersionMigration.
type migration struct {
	*migrationv1.StorageVersionMigration
	revision int64
}

func (m migration) is(t migrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
}

func (m migration) ended() bool {
	return m.is(migrationv1.MigrationSucceeded) || m.is(migrationv1.MigrationFailed)
}

// RunOne takes every migration as far as it goes. waiting says that one of them must be
// tried again. Of several migrations of a resource one runs at a time: the oldest.
func (c *Controller) RunOne(ctx context.Context) (waiting bool, err error) {
	all, err := c.list(ctx)
	if err != nil {
		return true, err
	}
	var errs []error
	running := map[metav1.GroupResource]bool{}
	for _, m := range all {
		if m.ended() && !m.is(migrationv1.MigrationRunning) || running[m.Spec.Resource] {
			continue
		}
		running[m.Spec.Resource] = true
		done, err := c.carryOut(ctx, m)
		waiting = waiting || !done
		if err != nil {
			errs = append(errs, fmt.Errorf("migration %s: %w", m.Name, err))
		}
	}
	return waiting, errors.Join(errs...)
}

// list returns the migrations, those that run first, then by age.
func (c *Controller) list(ctx context.Context) (out []migration, err error) {
	listing, err := c.store.List(ctx, store.ListRequest{Kind: c.version.Kind.Storage})
	if err != nil {
		return nil, err
	}
	for listing.Next() {
		o := listing.Object()
		obj, err := c.version.Decode(o.Body, o.ResourceVersion())
		if err != nil {
			return nil, err
		}
		if m, ok := obj.(*migrationv1.StorageVersionMigration); ok {
			out = append(out, migration{m, o.Revision})
		}
	}
	order := func(m migration) int {
		if m.is(migrationv1.MigrationRunning) {
			return 0
		}
		return 1
	}
	slices.SortFunc(out, func(a, b migration) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out, listing.Err()
}

// carryOut takes one migration through its states: running, ended, completed. Each is one
// write of its status. done is false if it must be tried again.
func (c *Controller) carryOut(ctx context.Context, m migration) (done bool, err error) {
	if !m.ended() {
		k := c.served(m.Spec.Resource)
		if k == nil {
			if c.now().Sub(m.CreationTimestamp.Time) < unknownFor {
				return false, nil
			}
			return true, c.fail(ctx, &m, "unable to obtain GVR from discovery")
		}
		if current, err := c.current(ctx, k); err != nil || !current {
			return false, err
		}
		if !m.is(migrationv1.MigrationRunning) {
			if err := c.begin(ctx, &m, k); err != nil {
				return false, lost(err)
			}
		}
		if err := c.migrate(ctx, &m, k); err != nil {
			return false, errors.Join(err, c.say(ctx, &m, "; transient error: "+err.Error()))
		}
	}
	if err := c.endDefinition(ctx, m.Spec.Resource, m.is(migrationv1.MigrationSucceeded)); err != nil {
		return false, lost(err)
	}
	err = c.set(ctx, &m, migrationv1.MigrationRunning, metav1.ConditionFalse, completedReason, "Migration completed")
	return err == nil, lost(err)
}

// lost drops the error of a lost compare-and-swap: the other write decides, and the
// migration is looked at again.
func lost(err error) error {
	if object.Is(err, object.Conflict) || object.Is(err, object.NotFound) {
		return nil
	}
	return err
}

// served finds the kind of a resource, or nil if no stored kind has this name.
func (c *Controller) served(r metav1.GroupResource) *kind.Kind {
	for _, k := range c.kinds.Snapshot().Kinds {
		if k.Group == r.Group && k.Plural == r.Resource && len(k.Versions) > 0 && !k.Ephemeral && k.Source == nil {
			return k
		}
	}
	return nil
}

// begin records the revision up to which objects are rewritten: later ones are stored as
// they should be.
func (c *Controller) begin(ctx context.Context, m *migration, k *kind.Kind) error {
	if err := c.beginDefinition(ctx, k, m.Name); err != nil {
		return err
	}
	m.Status.ResourceVersion = object.Object{Revision: c.store.Revision()}.ResourceVersion()
	return c.set(ctx, m, migrationv1.MigrationRunning, metav1.ConditionTrue, runningReason, "The migration is running")
}

func (c *Controller) fail(ctx context.Context, m *migration, why string) error {
	return lost(c.set(ctx, m, migrationv1.MigrationFailed, metav1.ConditionTrue, failedReason, "migration encountered unhandled error: "+why))
}

// say appends to the message of a running migration.
func (c *Controller) say(ctx context.Context, m *migration, more string) error {
	return lost(c.set(ctx, m, migrationv1.MigrationRunning, metav1.ConditionTrue, runningReason, "The migration is running"+more))
}

// set writes a condition into the status.
func (c *Controller) set(ctx context.Context, m *migration, t migrationv1.MigrationConditionType, status metav1.ConditionStatus, reason, message string) error {
	changed := meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: string(t), Status: status, Reason: reason, Message: message,
		ObservedGeneration: m.Generation, LastTransitionTime: metav1.NewTime(c.now()).Rfc3339Copy(),
	})
	if !changed {
		return nil
	}
	body, err := c.version.Encode(m.StorageVersionMigration)
	if err != nil {
		return err
	}
	o, err := c.store.Update(ctx, store.UpdateRequest{
		Key: object.Key{Kind: c.version.Kind.Storage, Name: m.Name}, IfRevision: m.revision, Meta: m.ObjectMeta, Body: body, Actor: actor,
	})
	m.revision = o.Revision
	return err
}
