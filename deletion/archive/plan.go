package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// candidate is an object to restore. Its body is read only when it is restored,
// because a cascade may be large.
type candidate struct {
	id      int64 // of its archive row: the revision of its removal
	uid     types.UID
	key     object.Key
	owners  []types.UID
	cascade string
	// isDefault: the server creates an equal object in every namespace.
	isDefault bool
	// demand: its content may need rights beside create, the same as all others with this
	// text. Empty if it needs none.
	demand string
	// then is the object of a revert, with the body of that time. Its id is 0 if the archive has no row of it.
	then     *row
	restored bool // an earlier restore created it again
	// recreated: a client created it during the cascade, which removed it too. See
	// markRecreated.
	recreated bool
}

// plan orders candidates in levels: what an object needs is in an earlier level.
// It needs its owners, its namespace and the definition of its kind, if they are
// candidates too. A circle of owners is cut at the candidate where the search
// enters it. A level is in order of removal. ResourceQuotas come last: what they limited
// comes back beside them, even if it exceeded them.
func plan(all []*candidate) [][]*candidate {
	p := planner{byUID: map[types.UID]*candidate{}, byKey: map[object.Key]*candidate{}, levels: map[*candidate]int{}}
	slices.SortFunc(all, func(a, b *candidate) int { return cmp.Compare(a.id, b.id) })
	for _, c := range all {
		p.byUID[c.uid] = c
		if p.byKey[c.key] == nil {
			p.byKey[c.key] = c
		}
	}
	var levels [][]*candidate
	var last []*candidate
	for _, c := range all {
		if c.key.Kind == resourceQuotas {
			last = append(last, c)
			continue
		}
		level := p.level(c)
		for len(levels) <= level {
			levels = append(levels, nil)
		}
		levels[level] = append(levels[level], c)
	}
	if len(last) > 0 {
		levels = append(levels, last)
	}
	for _, level := range levels {
		for _, c := range level {
			p.markRecreated(c)
		}
	}
	return levels
}

type planner struct {
	byUID  map[types.UID]*candidate
	byKey  map[object.Key]*candidate // the first of its name that was removed
	levels map[*candidate]int        // inProgress, or the level
}

// inProgress marks a candidate whose needs are being visited.
const inProgress = -1

func (p *planner) level(c *candidate) int {
	if level, seen := p.levels[c]; seen {
		return level // inProgress: cut the circle here
	}
	p.levels[c] = inProgress
	level := 0
	for _, need := range p.needs(c) {
		level = max(level, p.level(need)+1)
	}
	p.levels[c] = level
	return level
}

func (p *planner) needs(c *candidate) []*candidate {
	var needs []*candidate
	add := func(n *candidate) {
		if n != nil && n != c {
			needs = append(needs, n)
		}
	}
	for _, uid := range c.owners {
		add(p.byUID[uid])
	}
	if c.key.Namespace != "" {
		add(p.byKey[object.Key{Kind: object.Namespaces, Name: c.key.Namespace}])
	}
	// The name of a definition is the storage name of its objects.
	add(p.byKey[object.Key{Kind: object.Definitions, Name: c.key.Kind}])
	return needs
}

// markRecreated marks objects that a controller created again during the cascade,
// before it saw the deletion. A restore wants the objects from before the cascade.
// Of two objects of one name, the first one removed is from before; an object
// whose owners are all recreated is recreated too. Mark owners first.
func (p *planner) markRecreated(c *candidate) {
	c.recreated = p.byKey[c.key] != c || len(c.owners) > 0 && !slices.ContainsFunc(c.owners, func(uid types.UID) bool {
		owner := p.byUID[uid]
		return owner == nil || !owner.recreated
	})
}

// A dry run asks the store about each object by itself. What earlier objects of the same
// restore would change is kept here: the namespaces and kinds that would exist, and what quotas
// would have left.

// resourceQuotas is the kind of quotas.
const resourceQuotas = "resourcequotas"

// quotas are the quotas of namespaces as a dry run would leave them.
type quotas struct {
	limits  map[string]store.Limiter // by namespace; nil if it has no quota
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
// changes nothing; nil if there are none.
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
