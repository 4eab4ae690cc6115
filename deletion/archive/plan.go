package archive

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
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
	// text. Empty: it needs none.
	demand   string
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
