package retain

import (
	"slices"
	"time"
)

// newest are the tags of a repository that the rules of policies keep by their number. With them, a part of the tags can be decided
// about: what Decide takes of a part and the newest, it takes of all tags, and the other way round. For a tag has no more newer ones in a
// part than among all, and if it is not one of the newest, those are in the part.
//
// Without all of the newest Decide takes less, never more: so a transaction may read them again, and some may be gone.
type newest struct {
	policies []Policy
	of       [][][]Tag // by policy and rule; up to twice as many as the rule keeps
}

func newNewest(policies []Policy) newest {
	n := newest{policies: policies}
	for _, p := range policies {
		n.of = append(n.of, make([][]Tag, len(p.Rules)))
	}
	return n
}

// add looks at further tags of the repository.
func (n newest) add(tags []Tag) {
	for i := range n.policies {
		p := &n.policies[i]
		for _, t := range tags {
			rule := p.ruleOf(t.Name)
			if rule < 0 || p.Rules[rule].KeepLast == 0 {
				continue
			}
			kept := append(n.of[i][rule], t)
			if most := p.Rules[rule].KeepLast; len(kept) >= 2*most {
				p.Rules[rule].sort(kept)
				kept = kept[:most]
			}
			n.of[i][rule] = kept
		}
	}
}

// decide decides about a page of tags.
func (n newest) decide(now time.Time, policies []Policy, page []Tag) Decision {
	ofPage := map[string]bool{}
	for _, t := range page {
		ofPage[t.Name] = true
	}
	other := func(t Taken) bool { return !ofPage[t.Tag] }
	d := Decide(now, policies, n.with(page))
	return Decision{Taken: slices.DeleteFunc(d.Taken, other), Held: slices.DeleteFunc(d.Held, other)}
}

// with returns a page of tags with the newest.
func (n newest) with(page []Tag) []Tag {
	all, there := slices.Clone(page), map[string]bool{}
	for _, t := range page {
		there[t.Name] = true
	}
	for _, rules := range n.of {
		for _, tags := range rules {
			for _, t := range tags {
				if !there[t.Name] {
					there[t.Name] = true
					all = append(all, t)
				}
			}
		}
	}
	return all
}

// names returns the names of the newest.
func (n newest) names() (names []string) {
	for _, t := range n.with(nil) {
		names = append(names, t.Name)
	}
	return names
}
