package archive

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
)

// candidate is an object that is to come back. Its body is read when its turn
// comes: a cascade may be large.
type candidate struct {
	id      int64 // of its archive row: the revision of its removal
	uid     types.UID
	key     object.Key
	owners  []types.UID
	cascade string
	// late: somebody made it while the cascade went on, and it went too. See
	// markLate.
	late bool
}

// plan orders candidates in levels: what an object needs is in a level before
// its own. It needs its owners, its namespace and the definition of its kind,
// as far as they come back with it. Owners in a circle cannot all come first:
// the circle is cut where it is entered. Within a level the order is that of
// the removals.
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
	for _, c := range all {
		level := p.level(c)
		for len(levels) <= level {
			levels = append(levels, nil)
		}
		levels[level] = append(levels[level], c)
	}
	for _, level := range levels {
		for _, c := range level {
			p.markLate(c)
		}
	}
	return levels
}

type planner struct {
	byUID  map[types.UID]*candidate
	byKey  map[object.Key]*candidate // the first of its name that went
	levels map[*candidate]int        // inProgress, or the level
}

// inProgress marks a candidate whose needs are being looked at.
const inProgress = -1

func (p *planner) level(c *candidate) int {
	if level, seen := p.levels[c]; seen {
		return level // inProgress: a circle, to be cut here
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
		add(p.byKey[object.Key{Kind: namespaces, Name: c.key.Namespace}])
	}
	// A definition is named as its objects are stored.
	add(p.byKey[object.Key{Kind: definitions, Name: c.key.Kind}])
	return needs
}

// markLate tells what was there when the deletion was asked for from what a
// controller made again because it had not heard of it: of two objects of a name
// the first to go was there, and what belongs to late ones only is late itself.
// Who restores wants what was there. Owners must have been marked before.
func (p *planner) markLate(c *candidate) {
	c.late = p.byKey[c.key] != c || len(c.owners) > 0 && !slices.ContainsFunc(c.owners, func(uid types.UID) bool {
		owner := p.byUID[uid]
		return owner == nil || !owner.late
	})
}
