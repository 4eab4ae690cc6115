// Package retain decides which tags of a repository leave by RetentionPolicies, and takes them. It
// promises:
//
//   - A plan, a run and a simulation ask the same function, Decide, which is pure.
//   - What a workload names is never taken, by tag or by digest, nor what the archive or the
//     history could bring back (package imageuse); nor an immutable tag. Signatures follow
//     their image: the collector removes them with it.
//   - A policy does nothing until it is started, and waits again when its spec changes.
//   - What was pushed, named or changed before the transaction that deletes counts.
//
// A tag that is taken can be undeleted like any other until the review of its manifest.
package retain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/exeunt/exeunt/internal/pattern"
	"github.com/exeunt/exeunt/lifecycle"
)

// Policy is a RetentionPolicy as a decision needs it.
type Policy struct {
	Name     string
	Started  bool
	Selector labels.Selector
	Rules    []Rule
	Keep     []string // patterns of tags that this policy keeps in any case

	matches map[string]match // of some tags, that no tag is matched twice; nil: they are not kept
}

// match is what the patterns of a policy say about the name of a tag: the index of the rule that decides, or -1.
type match struct {
	rule int
	kept bool
}

// mostMatches bounds the tags whose match a policy knows. Then all are forgotten.
const mostMatches = 20_000

// match matches a name, which takes some microseconds for each pattern.
func (p *Policy) match(tag string) match {
	m, known := p.matches[tag]
	if known {
		return m
	}
	m = match{-1, lifecycle.MatchTag(p.Keep, tag) != ""}
	if !signature().MatchString(tag) {
		m.rule = slices.IndexFunc(p.Rules, func(r Rule) bool { return lifecycle.MatchTag(r.Tags, tag) != "" })
	}
	if len(p.matches) >= mostMatches {
		clear(p.matches)
	}
	if p.matches != nil {
		p.matches[tag] = m
	}
	return m
}

// learn matches tags with policies, until ctx ends.
func learn(ctx context.Context, policies []Policy, tags []Tag) error {
	for i := range policies {
		for _, t := range tags {
			policies[i].match(t.Name)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Rule says what stays of the tags that match a pattern.
type Rule struct {
	Tags     []string
	KeepLast int
	KeepFor  time.Duration
	ByPull   bool // the times are those of the last pull, or of the push if that is later
}

// Tag is a tag of a repository.
type Tag struct {
	Name, Digest   string
	Pushed, Pulled time.Time // zero: not since pulls are recorded
	InUse          bool
	Immutable      bool
}

// Taken is a tag that leaves, or would leave if nothing held it.
type Taken struct {
	Tag    string `json:"tag"`
	Digest string `json:"digest"`
	Policy string `json:"policy"`
	Why    string `json:"why"`
}

// Decision is what policies do to a repository.
type Decision struct {
	Taken []Taken `json:"taken"`
	Held  []Taken `json:"held"` // would be taken, but is in use or immutable
}

// signature matches the tags by which referrers and signatures name their subject.
var signature = pattern.New(`^sha(256-[0-9a-f]{64}|512-[0-9a-f]{128})(\.[a-z]+)?$`)

// Decide returns which tags of a repository leave. In each policy the first rule that a tag matches decides about it. A
// tag leaves if a policy takes it and none keeps it; one that no rule matches is nothing to a policy.
func Decide(now time.Time, policies []Policy, tags []Tag) (d Decision) {
	kept, takenBy := map[string]bool{}, map[string]Taken{}
	for _, p := range policies {
		matched := make([][]Tag, len(p.Rules))
		for _, t := range tags {
			if i := p.ruleOf(t.Name); i >= 0 {
				matched[i] = append(matched[i], t)
			}
		}
		for i := range p.Rules {
			p.Rules[i].apply(now, p, matched[i], kept, takenBy)
		}
	}
	for _, t := range tags {
		taken, ok := takenBy[t.Name]
		switch {
		case !ok || kept[t.Name]:
		case t.InUse:
			taken.Why = "in use"
			d.Held = append(d.Held, taken)
		case t.Immutable:
			taken.Why = "immutable"
			d.Held = append(d.Held, taken)
		default:
			d.Taken = append(d.Taken, taken)
		}
	}
	return d
}

// ruleOf returns the index of the rule that decides about a tag, or -1.
func (p *Policy) ruleOf(tag string) int { return p.match(tag).rule }

// apply notes what a rule keeps and takes of the tags that it decides about.
func (r *Rule) apply(now time.Time, p Policy, tags []Tag, kept map[string]bool, takenBy map[string]Taken) {
	r.sort(tags)
	for n, t := range tags {
		if n < r.KeepLast || now.Sub(r.timeOf(t)) < r.KeepFor || p.match(t.Name).kept {
			kept[t.Name] = true
			continue
		}
		if _, before := takenBy[t.Name]; !before {
			takenBy[t.Name] = Taken{Tag: t.Name, Digest: t.Digest, Policy: p.Name, Why: r.why()}
		}
	}
}

func (r *Rule) timeOf(t Tag) time.Time {
	if r.ByPull && t.Pulled.After(t.Pushed) {
		return t.Pulled
	}
	return t.Pushed
}

// sort sorts tags, the newest first.
func (r *Rule) sort(tags []Tag) {
	slices.SortFunc(tags, func(a, b Tag) int {
		return cmp.Or(r.timeOf(b).Compare(r.timeOf(a)), cmp.Compare(a.Name, b.Name))
	})
}

// why says why a tag leaves.
func (r *Rule) why() string {
	event := "push"
	if r.ByPull {
		event = "pull"
	}
	text := fmt.Sprintf("not among the last %d by %s", r.KeepLast, event)
	if r.KeepFor > 0 {
		text += fmt.Sprintf(", older than %v", r.KeepFor)
	}
	return text
}

// spec is the spec of a RetentionPolicy.
type spec struct {
	Selector *metav1.LabelSelector `json:"selector"`
	Keep     []string              `json:"keep"`
	Rules    []struct {
		Tags     []string `json:"tags"`
		KeepLast int      `json:"keepLast"`
		KeepFor  string   `json:"keepFor"`
		By       string   `json:"by"`
	} `json:"rules"`
}

// parse reads a policy from its body.
func parse(body []byte) (p Policy, err error) {
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     spec              `json:"spec"`
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return p, err
	}
	p = Policy{Name: o.Metadata.Name, Keep: o.Spec.Keep, Selector: labels.Everything(), matches: map[string]match{}}
	p.Started = o.Metadata.Annotations[lifecycle.StartRetention] == strconv.FormatInt(o.Metadata.Generation, 10)
	if o.Spec.Selector != nil {
		if p.Selector, err = metav1.LabelSelectorAsSelector(o.Spec.Selector); err != nil {
			return p, fmt.Errorf("selector: %w", err)
		}
	}
	if err := checkPatterns(p.Keep); err != nil {
		return p, fmt.Errorf("keep: %w", err)
	}
	for i, from := range o.Spec.Rules {
		r := Rule{Tags: from.Tags, KeepLast: from.KeepLast, ByPull: from.By == "Pull"}
		if err := checkPatterns(r.Tags); err != nil {
			return p, fmt.Errorf("rules[%d].tags: %w", i, err)
		}
		if from.KeepFor != "" {
			if r.KeepFor, err = lifecycle.ParseDuration(from.KeepFor); err != nil || r.KeepFor < 0 {
				return p, fmt.Errorf(`rules[%d].keepFor: %q is not a duration such as "30d" or "12h"`, i, from.KeepFor)
			}
		}
		p.Rules = append(p.Rules, r)
	}
	return p, nil
}

func checkPatterns(patterns []string) error {
	for _, p := range patterns {
		if list, err := lifecycle.ParsePatterns(p); err != nil || len(list) != 1 {
			return fmt.Errorf("%q is not a pattern of tags", p)
		}
	}
	return nil
}
