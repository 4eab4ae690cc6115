package archive

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// A dry run asks the store about each object by itself. What earlier objects of the same
// restore would change is kept here: the namespaces and kinds that would exist, and what quotas
// would have left.

// resourceQuotas is the kind of quotas.
const resourceQuotas = "resourcequotas"

// quotas are the quotas of namespaces as a dry run would leave them.
type quotas struct {
	limits  map[string]store.Limiter // by namespace; nil: it has no quota
	planned map[object.Key]store.Change
}

// anyLimited reports whether a quota limits some of the objects. Those of the restore itself come last.
func (r *restoration) anyLimited(ctx context.Context, level []*candidate) (bool, error) {
	for _, c := range level {
		limited, known := r.limitedIn[c.key.Namespace]
		if !known && c.key.Namespace != "" {
			var err error
			if limited, err = r.hasQuota(ctx, c.key.Namespace); err != nil {
				return false, err
			}
			r.limitedIn[c.key.Namespace] = limited
		}
		if limited {
			return true, nil
		}
	}
	return false, nil
}

func (r *restoration) hasQuota(ctx context.Context, namespace string) (bool, error) {
	listing, err := r.store.List(ctx, store.ListRequest{Kind: resourceQuotas, Namespace: namespace, Limit: 1})
	if err != nil {
		return false, err
	}
	return listing.Next(), listing.Err()
}

// wouldCreate notes an object that a dry run would create.
func (r *restoration) wouldCreate(ctx context.Context, c *candidate, request store.CreateRequest) error {
	if err := r.pretend(ctx, c.key, request.Body); err != nil {
		return err
	}
	limited, err := r.limited(ctx, c.key.Namespace)
	if err != nil || limited == nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quotas.planned[c.key] = store.Change{Type: store.Created, Key: c.key, UID: string(request.Meta.UID), After: request.Body}
	return nil
}

// pretend makes a namespace exist for webhooks and policies, and a definition for the objects of its kind.
func (r *restoration) pretend(ctx context.Context, key object.Key, body []byte) error {
	if key.Kind != object.Namespaces && key.Kind != object.Definitions {
		return nil
	}
	v, err := r.version(ctx, key.Kind)
	if err != nil {
		return err
	}
	obj, err := v.Decode(body, "")
	switch {
	case err != nil:
		return err
	case key.Kind == object.Namespaces && r.client.Pretend != nil:
		r.client.Pretend(r.lasting, obj)
	case key.Kind == object.Definitions && r.opts.Define != nil:
		k, err := r.opts.Define(obj)
		if err != nil {
			return nil // of its objects a dry run then knows only that they would come back
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.defined == nil {
			r.defined = map[string]*kind.Kind{}
		}
		k.Definition = "" // the store would look for it
		r.defined[key.Name] = k
	}
	return nil
}

var errSimulated = errors.New("the transaction of a dry run")

// limited returns the limits of a namespace for this dry run, which a transaction reads that
// changes nothing; nil: there are none.
func (r *restoration) limited(ctx context.Context, namespace string) (limiter store.Limiter, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quotas.limits == nil {
		r.quotas = quotas{limits: map[string]store.Limiter{}, planned: map[object.Key]store.Change{}}
	}
	limiter, known := r.quotas.limits[namespace]
	if known || namespace == "" {
		return limiter, nil
	}
	has, err := r.hasQuota(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if has {
		err = r.store.Transact(ctx, func(tx *store.Tx) error {
			if limiter = tx.Limiter(); limiter == nil {
				return errSimulated
			}
			return errors.Join(limiter.Prepare(ctx, namespace), errSimulated)
		})
		if !errors.Is(err, errSimulated) {
			return nil, fmt.Errorf("read quotas: %w", err)
		}
	}
	r.quotas.limits[namespace] = limiter
	return limiter, nil
}

// applyQuotas refuses the objects of a level of a dry run that would not fit into a quota
// beside those before them.
func (r *restoration) applyQuotas(results []v1.RestoreResult, level []*candidate) {
	for i := range results {
		result, c := &results[i], level[i]
		change, planned := r.quotas.planned[c.key]
		if result.Outcome != v1.Created || !planned {
			continue
		}
		limiter := r.quotas.limits[c.key.Namespace]
		delete(r.quotas.planned, c.key)
		if err := limiter.Check(change); err != nil {
			delete(r.now, result.NewUID)
			result.Outcome, result.Reason, result.NewUID, result.Changes = v1.Failed, err.Error(), "", nil
			continue
		}
		limiter.Accept(change)
	}
}
