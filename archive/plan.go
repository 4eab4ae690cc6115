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
	id     int64 // of its archive row: the revision of its removal
	uid    types.UID
	key    object.Key
	owners []types.UID
	// replaced: an object of the same name was removed after it, and comes
	// back instead.
	replaced bool
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
		if older := p.byKey[c.key]; older != nil {
			older.replaced = true
		}
		p.byKey[c.key] = c
	}
	var levels [][]*candidate
	for _, c := range all {
		level := p.level(c)
		for len(levels) <= level {
			levels = append(levels, nil)
		}
		levels[level] = append(levels[level], c)
	}
	return levels
}

type planner struct {
	byUID  map[types.UID]*candidate
	byKey  map[object.Key]*candidate
	levels map[*candidate]int // inProgress, or the level
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
