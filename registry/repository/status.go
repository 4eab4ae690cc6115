package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/object"
	v1 "github.com/exeunt/exeunt/registry/v1"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// A status is stored, so that watches report it and every read agrees with its
// resourceVersion. Pushes do not write it: the pushes of one repository would
// wait for each other, and each would create a version of the object. A push
// only records the repository's id in memory. Run counts each recorded
// repository and writes its status, at most once per Options.Every. Ids that are
// lost with the process are made up for by a periodic update of all
// repositories.

const (
	// restFactor bounds the time spent on counting a large repository: after a
	// count that took d, the next count waits for restFactor times d.
	restFactor = 100
	// maxTries bounds the retries after a conflict with another writer of the
	// status.
	maxTries = 5
	// actor is the recorded author of status writes.
	actor = "system:registry"
)

// Touch records that the content of a repository has changed.
func (r *Repositories) Touch(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.touched[id] = true
}

// Run keeps the status of all repositories up to date until ctx ends, and then
// returns nil.
func (r *Repositories) Run(ctx context.Context) error {
	return task.Run(ctx, r.opts.Logger, task.Loop("repositories", r.update), task.Loop("repositories-watch", func(ctx context.Context) {
		for ctx.Err() == nil {
			r.attempt(ctx, "watch the repositories", r.follow)
			task.Sleep(ctx, r.opts.Every) // the backoff
		}
	}))
}

func (r *Repositories) update(ctx context.Context) {
	tick := time.NewTicker(r.opts.Every)
	defer tick.Stop()
	var all time.Time
	for {
		if r.UsesUnknown() != nil {
			r.attempt(ctx, "find the images that objects name", r.knowUses)
		}
		if now := time.Now(); !now.Before(all) {
			all = now.Add(r.opts.All)
			r.attempt(ctx, "queue a status update of all repositories", r.touchAll)
		}
		r.attempt(ctx, "update the status of repositories", r.RunOne)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *Repositories) attempt(ctx context.Context, what string, step func(context.Context) error) {
	if err := step(ctx); err != nil && ctx.Err() == nil {
		r.opts.Logger.Warn(what, "error", err)
	}
}

// follow touches the repositories whose objects are created (most often by a
// restore) or get another spec, until ctx or the watch ends.
func (r *Repositories) follow(ctx context.Context) error {
	from := store.WatchRequest{Kind: r.version.Kind.Storage, From: r.store.Revision()}
	return r.store.Follow(ctx, from, func(events []*store.Event) error {
		for _, e := range events {
			if err := r.touchObject(ctx, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// touchObject touches the repository of an object after a creation or a change of its
// spec. It ignores changes of the status.
func (r *Repositories) touchObject(ctx context.Context, e *store.Event) error {
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

// touchAll touches every repository, and creates the missing objects of
// repositories that are older than the kind.
func (r *Repositories) touchAll(ctx context.Context) error {
	var missing []string
	if err := sqldb.Each(ctx, r.db, func(row sqldb.Row) error {
		var id int64
		var path string
		var has bool
		err := row.Scan(&id, &path, &has)
		r.Touch(id)
		if !has {
			missing = append(missing, path)
		}
		return err
	}, listRows); err != nil {
		return err
	}
	for _, path := range missing {
		if err := r.adopt(ctx, path); err != nil {
			return fmt.Errorf("make the object of repository %s: %w", path, err)
		}
	}
	return nil
}

// RunOne updates the status of all touched repositories, except those that were
// slow to count recently.
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

// Refresh updates the status of one repository now, even if it was slow to count
// recently: for a client that reads it next.
func (r *Repositories) Refresh(ctx context.Context, id int64) error {
	if err := r.refresh(ctx, id); err != nil {
		return fmt.Errorf("refresh the status of repository %d: %w", id, err)
	}
	return nil
}

// refresh counts one repository, and writes its status if it has changed. It
// reads the object before it counts. If another refresh writes the status
// meanwhile, this one gets a conflict and counts again. So an older count never
// replaces a newer one.
func (r *Repositories) refresh(ctx context.Context, id int64) error {
	var path string
	found, err := r.db.Row(ctx, findRow, []any{id}, &path)
	if err != nil || !found {
		return err // the repository was removed
	}
	namespace, name := v1.Name(path)
	for try := 1; ; try++ {
		err := r.writer.SetStatus(ctx, v1.GroupVersion.WithResource(v1.Plural), namespace, name, func(status map[string]any) error {
			return r.countInto(ctx, id, status)
		})
		switch {
		case object.Is(err, object.NotFound):
			return nil
		case object.Is(err, object.Conflict) && try < maxTries:
			continue
		}
		return err
	}
}

// countInto counts a repository into its status. lastPush stays when the pushed content is gone.
func (r *Repositories) countInto(ctx context.Context, id int64, status map[string]any) error {
	var tags, manifests, size, reclaimable, pushed, tagged int64
	if _, err := r.db.Row(ctx, countContent, []any{id}, &tags, &manifests, &size, &reclaimable, &pushed, &tagged); err != nil {
		return fmt.Errorf("count: %w", err)
	}
	status["size"], status["tags"], status["manifests"], status["reclaimable"] = size, tags, manifests, reclaimable
	if push := max(pushed, tagged); push > 0 {
		at := time.UnixMilli(push).UTC().Format(time.RFC3339)
		if last, _ := status["lastPush"].(string); at > last {
			status["lastPush"] = at
		}
	}
	return nil
}
