package policy

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/rbac"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
)

// Aggregator writes the rules of aggregated ClusterRoles, as Kubernetes does, so that
// they can be read and every decision is made from what is stored. Every replica runs
// it: all compute the same, and the first write wins.
type Aggregator struct {
	Directory *directory.Directory
	Writer    objects.Writer
	Logger    *slog.Logger
}

// Run keeps the roles up to date until the context ends.
func (a *Aggregator) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		index, changed := a.Directory.Changed()
		retry := a.runOnce(ctx, index)
		var again <-chan time.Time
		if retry {
			again = time.After(time.Second)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again:
		}
	}
	return nil
}

// runOnce updates every role whose rules are not those of its sources. It returns true
// if a write failed that no other change will repeat.
func (a *Aggregator) runOnce(ctx context.Context, index *rbac.Index) (retry bool) {
	all := index.Objects().ClusterRoles
	for _, role := range all {
		rules, ok := rbac.Aggregate(role, all)
		if !ok || equality.Semantic.DeepEqual(rules, role.Rules) {
			continue
		}
		next := role.DeepCopy()
		next.Rules = rules
		err := a.Writer.Update(ctx, clusterRoles, next, role)
		if err == nil || object.Is(err, object.Conflict) || object.Is(err, object.NotFound) {
			continue // the change wakes Run again
		}
		if ctx.Err() == nil {
			a.Logger.Warn("aggregated ClusterRole could not be written; the next try is in a second", "name", role.Name, "error", err)
			retry = true
		}
	}
	return retry
}
