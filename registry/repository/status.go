package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	v1 "github.com/exeunt/exeunt/registry/v1"
	"github.com/exeunt/exeunt/store"
)

// A status is stored, so that watches tell of it and every read agrees with its
// resourceVersion. It is not written by pushes: those of one repository would
// wait for each other, and each would make a version of the object. Pushes
// leave a note in memory, and what has notes is counted and written at most
// once in Options.Every, however much was pushed. Notes that are lost, with the
// process, are made up for by going through all repositories now and then.

const (
	// restFactor bounds the share of time that counting one large repository
	// takes: after a count it rests so many times as long as that took.
	restFactor = 100
	// maxTries bounds how often a status is written that others write to, too.
	maxTries = 5
	// actor is who writes the status.
	actor = "system:registry"
)

// Touch notes that the content of a repository has changed.
func (r *Repositories) Touch(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.touched[id] = true
}

// Run keeps the status of all repositories up to date until ctx ends, and then
// returns nil.
func (r *Repositories) Run(ctx context.Context) error {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() {
		for ctx.Err() == nil {
			r.try(ctx, "follow the repositories", r.follow)
			select { // before the next attempt
			case <-ctx.Done():
			case <-time.After(r.opts.Every):
			}
		}
	})
	tick := time.NewTicker(r.opts.Every)
	defer tick.Stop()
	var all time.Time
	for {
		if now := time.Now(); !now.Before(all) {
			all = now.Add(r.opts.All)
			r.try(ctx, "look through the repositories", r.touchAll)
		}
		r.try(ctx, "bring repositories up to date", r.RunOne)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (r *Repositories) try(ctx context.Context, what string, step func(context.Context) error) {
	if err := step(ctx); err != nil && ctx.Err() == nil {
		r.opts.Logger.Warn(what, "error", err)
	}
}

// follow notes the repositories whose objects are created, restored above all,
// or get another spec, until ctx or the watch ends.
func (r *Repositories) follow(ctx context.Context) error {
	watcher, err := r.store.Watch(ctx, store.WatchRequest{Kind: r.version.Kind.Storage, From: r.store.Revision()})
	if err != nil {
		return err
	}
	defer watcher.Close()
	for {
		events, _, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := r.note(ctx, e); err != nil {
				return err
			}
		}
	}
}

// note touches the repository of an object that a change of the spec, or its
// creation, may give other figures. A status that was written is no reason.
func (r *Repositories) note(ctx context.Context, e *store.Event) error {
	now, err := object.DecodeUnstructured(e.Object.Body, e.Object.ResourceVersion(), r.version.GVK)
	if err != nil || e.Type == store.Removed {
		return err
	}
	if e.Type == store.Updated {
		before, err := object.ParseMeta(e.Previous)
		if err != nil || before.Generation == now.GetGeneration() {
			return err
		}
	}
	var id int64
	found, err := r.db.Row(ctx, findPath, []any{pathOf(now)}, &id)
	if err == nil && found {
		r.Touch(id)
	}
	return err
}

// touchAll notes every repository, and makes objects of those that have none:
// they are older than the kind.
func (r *Repositories) touchAll(ctx context.Context) error {
	rows, err := r.db.Query(ctx, listRows)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var missing []string
	for rows.Next() {
		var id int64
		var path string
		var has bool
		if err := rows.Scan(&id, &path, &has); err != nil {
			return err
		}
		r.Touch(id)
		if !has {
			missing = append(missing, path)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, path := range missing {
		if err := r.declare(ctx, path); err != nil {
			return fmt.Errorf("make the object of repository %s: %w", path, err)
		}
	}
	return nil
}

// RunOne brings the status of all repositories with notes up to date, but for
// those that rest.
func (r *Repositories) RunOne(ctx context.Context) error {
	r.mu.Lock()
	touched := r.touched
	r.touched = map[int64]bool{}
	r.mu.Unlock()
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(touched)) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		begin := time.Now()
		if begin.Before(r.rest[id]) {
			r.Touch(id)
			continue
		}
		if err := r.refresh(ctx, id); err != nil {
			r.Touch(id)
			errs = append(errs, fmt.Errorf("repository %d: %w", id, err))
		}
		delete(r.rest, id)
		if took := time.Since(begin); took*restFactor > r.opts.Every {
			r.rest[id] = time.Now().Add(took * restFactor)
		}
	}
	return errors.Join(errs...)
}

// figures are what a status says.
type figures struct {
	size, tags, manifests, reclaimable int64
	push                               int64 // Unix milliseconds; 0: never
}

// Refresh brings the status of one repository up to date now, also if it rests: for
// a client that looks at it next.
func (r *Repositories) Refresh(ctx context.Context, id int64) error {
	if err := r.refresh(ctx, id); err != nil {
		return fmt.Errorf("refresh the status of repository %d: %w", id, err)
	}
	return nil
}

// refresh counts one repository, and writes its status if it has changed. The
// object is read first: a status that another refresh writes after that makes this
// one count again, so an older count never replaces a newer one.
func (r *Repositories) refresh(ctx context.Context, id int64) error {
	var path string
	found, err := r.db.Row(ctx, findRow, []any{id}, &path)
	if err != nil || !found {
		return err // it was removed
	}
	key := r.key(v1.Name(path))
	for try := 1; ; try++ {
		current, err := r.store.Get(ctx, key)
		if err == nil {
			err = r.countInto(ctx, id, current)
		}
		switch {
		case object.Is(err, object.NotFound):
			return nil
		case object.Is(err, object.Conflict) && try < maxTries:
			continue
		}
		return err
	}
}

// countInto counts a repository and writes the figures to its object, as it was read.
func (r *Repositories) countInto(ctx context.Context, id int64, current object.Object) error {
	var f figures
	var pushed, tagged int64
	if _, err := r.db.Row(ctx, countContent, []any{id}, &f.tags, &f.manifests, &f.size, &f.reclaimable, &pushed, &tagged); err != nil {
		return fmt.Errorf("count: %w", err)
	}
	f.push = max(pushed, tagged)
	return r.write(ctx, current, f)
}

// write puts figures into the status of an object, by the rules of /status. Error:
// Conflict if the object has changed since it was read.
func (r *Repositories) write(ctx context.Context, current object.Object, f figures) error {
	old, err := r.version.Decode(current.Body, current.ResourceVersion())
	if err != nil {
		return err
	}
	u, ok := old.DeepCopyObject().(*unstructured.Unstructured)
	if !ok {
		return errNotCustom
	}
	if !f.into(u) {
		return nil
	}
	updated, err := lifecycle.BeforeUpdate(ctx, r.version.Status, u, old, lifecycle.Change{Namespace: current.Namespace})
	if err != nil {
		return err
	}
	body, err := r.version.Encode(u)
	if err != nil {
		return err
	}
	meta, err := object.ParseMeta(body)
	if err != nil {
		return err
	}
	_, err = r.store.Update(ctx, store.UpdateRequest{
		Key: current.Key, IfRevision: current.Revision, Meta: meta, Body: body, Remove: updated.Remove, Actor: actor,
	})
	return err
}

// into sets the status, and says whether that changed anything. The last push
// stays known when what was pushed is gone.
func (f figures) into(u *unstructured.Unstructured) bool {
	before, _, _ := unstructured.NestedMap(u.Object, "status")
	status := map[string]any{"size": f.size, "tags": f.tags, "manifests": f.manifests, "reclaimable": f.reclaimable}
	if last, ok := before["lastPush"]; ok {
		status["lastPush"] = last
	}
	if f.push > 0 {
		at := time.UnixMilli(f.push).UTC().Format(time.RFC3339)
		if last, _ := status["lastPush"].(string); at > last {
			status["lastPush"] = at
		}
	}
	if maps.Equal(before, status) {
		return false
	}
	u.Object["status"] = status
	return true
}
