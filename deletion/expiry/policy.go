package expiry

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store/due"
)

// Policy is an ExpiryPolicy or a ClusterExpiryPolicy as decisions need it. It is immutable.
type Policy struct {
	Namespace, Name string // Namespace is empty for a ClusterExpiryPolicy
	UID             types.UID
	Generation      int64
	// Start is what a person confirmed, if that was for this generation; zero: the policy observes.
	Start lifecycle.Start

	Resources  []string // as in object.Key.Kind
	Namespaces []string // patterns; empty: all
	Selector   labels.Selector
	Fields     string
	// Condition returns the compiled condition. Nil: none.
	Condition   func() (*condition, error)
	After       time.Duration
	Since       string
	Conditions  []statusCondition
	Propagation metav1.DeletionPropagation
	Grace       *int64
	// Without a confirmation it takes at most so many objects in a day, and so many of 100 in its scope. 0: no such limit.
	Objects, Percent int64

	Newest  int64    // of each group so many stay
	GroupBy []string // labels

	Windows []window // empty: at any time
	Rate    int64    // how many it takes in a slot; 0: no limit
	slot    time.Duration

	deleting bool
}

// The values of spec.expire.since.
const (
	sinceCreation  = "Creation"
	sinceLastWrite = "LastWrite"
	sinceCondition = "Condition"
)

// statusCondition is an entry of status.conditions that has a status.
type statusCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// defaultObjects is how many objects a policy takes in a day, if it does not say.
const defaultObjects = 1000

// spec is the spec of a policy.
type spec struct {
	Resources     []string              `json:"resources"`
	Namespaces    []string              `json:"namespaces"`
	Selector      *metav1.LabelSelector `json:"selector"`
	FieldSelector string                `json:"fieldSelector"`
	Condition     string                `json:"condition"`
	Expire        struct {
		After      string            `json:"after"`
		Since      string            `json:"since"`
		Conditions []statusCondition `json:"conditions"`
	} `json:"expire"`
	PropagationPolicy  metav1.DeletionPropagation `json:"propagationPolicy"`
	GracePeriodSeconds *int64                     `json:"gracePeriodSeconds"`
	KeepNewest         struct {
		Objects int64    `json:"objects"`
		Labels  []string `json:"labels"`
	} `json:"keepNewest"`
	Windows      []window `json:"windows"`
	Rate         rate     `json:"rate"`
	ConfirmAbove *struct {
		Objects int64 `json:"objects"`
		Percent int64 `json:"percent"`
	} `json:"confirmAbove"`
}

// parsePolicy reads a policy from its body. Its condition is compiled when it is first asked.
func parsePolicy(body []byte) (*Policy, error) {
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     spec              `json:"spec"`
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, err
	}
	m, s := &o.Metadata, &o.Spec
	p := &Policy{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Generation: m.Generation,
		Resources: s.Resources, Namespaces: s.Namespaces, Selector: labels.Everything(), Fields: s.FieldSelector,
		Since: s.Expire.Since, Conditions: s.Expire.Conditions, Propagation: s.PropagationPolicy, Grace: s.GracePeriodSeconds, Objects: defaultObjects,
		deleting: m.DeletionTimestamp != nil, Newest: s.KeepNewest.Objects, GroupBy: s.KeepNewest.Labels,
	}
	if start, err := lifecycle.ParseStart(m.Annotations[lifecycle.StartExpiry]); err == nil && start.Generation == m.Generation {
		p.Start = start
	}
	if s.Condition != "" {
		p.Condition = sync.OnceValues(func() (*condition, error) { return compile(s.Condition) })
	}
	if s.ConfirmAbove != nil {
		p.Objects, p.Percent = s.ConfirmAbove.Objects, s.ConfirmAbove.Percent
	}
	for _, check := range []func(*spec) error{p.parseSelectors, p.parseExpire, p.parsePace} {
		if err := check(s); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Policy) parseSelectors(s *spec) (err error) {
	for i, r := range s.Resources {
		if slices.Contains(s.Resources[:i], r) {
			return fmt.Errorf("resources: %s is there twice", r)
		}
		if r == object.Events || r == policies || r == clusterPolicies {
			return fmt.Errorf("resources: %s do not expire by policies", r)
		}
	}
	for _, pattern := range s.Namespaces {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("namespaces: %q is not a pattern of names", pattern)
		}
	}
	if s.Selector != nil {
		if p.Selector, err = metav1.LabelSelectorAsSelector(s.Selector); err != nil {
			return fmt.Errorf("selector: %w", err)
		}
	}
	if _, err := fields.ParseSelector(s.FieldSelector); err != nil {
		return fmt.Errorf("fieldSelector: %w", err)
	}
	return nil
}

func (p *Policy) parseExpire(s *spec) (err error) {
	if p.After, err = lifecycle.ParseDuration(s.Expire.After); err != nil || p.After < 0 {
		return fmt.Errorf(`expire.after: %q is not a duration such as "30d" or "12h"`, s.Expire.After)
	}
	if p.Since == "" {
		p.Since = sinceCreation
	}
	if (p.Since == sinceCondition) != (len(p.Conditions) > 0) {
		return errors.New("expire.conditions: needed with since Condition, and only then")
	}
	return nil
}

// String names the policy for people.
func (p *Policy) String() string {
	if p.Namespace == "" {
		return "clusterexpirypolicy/" + p.Name
	}
	return "expirypolicy/" + p.Name
}

// Actor is the user that deletes what the policy takes.
func (p *Policy) Actor() string {
	return User + ":" + strings.TrimPrefix(p.Namespace+"/"+p.Name, "/")
}

// Started reports whether the policy acts.
func (p *Policy) Started() bool { return p.Start.Generation != 0 }

// state names what a person has confirmed of the policy. What the server knows about it is about one state.
func (p *Policy) state() string {
	return fmt.Sprintf("%d %d/%d", p.Generation, p.Start.Generation, p.Start.Objects)
}

// most is how many objects the policy takes in a day, of scope.
func (p *Policy) most(scope int64) int64 {
	if p.Start.Objects > 0 {
		return p.Start.Objects
	}
	most := lifecycle.Forever.Unix() // no limit
	if p.Objects > 0 {
		most = p.Objects
	}
	if p.Percent > 0 {
		most = min(most, scope*p.Percent/100)
	}
	return most
}

// in reports whether an object is of the policy's resources and namespaces.
func (p *Policy) in(key object.Key) bool {
	if !slices.Contains(p.Resources, key.Kind) || p.Namespace != "" && p.Namespace != key.Namespace {
		return false
	}
	return len(p.Namespaces) == 0 || slices.ContainsFunc(p.Namespaces, func(pattern string) bool {
		ok, _ := path.Match(pattern, key.Namespace)
		return ok
	})
}

// due returns when an object of the policy's scope that its labels select expires; the zero time: it does not. Fields
// and condition are not asked.
func (p *Policy) due(m *metav1.ObjectMeta, held func() map[statusCondition]time.Time) time.Time {
	if !p.Selector.Matches(labels.Set(m.Labels)) {
		return time.Time{}
	}
	since := m.CreationTimestamp.Time
	switch p.Since {
	case sinceLastWrite:
		since = lastWrite(m)
	case sinceCondition:
		since = p.transition(held)
	}
	if since.IsZero() {
		return since
	}
	at, _ := lifecycle.Kept(m, since.Add(p.After), p.Name)
	return at
}

// doubts reports whether only the whole object, or others of its group, can say if the policy selects it.
func (p *Policy) doubts() bool { return p.Fields != "" || p.Condition != nil || p.Newest > 0 }

// groups names the groups of the policy, as its spec is now.
func (p *Policy) groups() string { return fmt.Sprint(p.UID, " ", p.Generation) }

// group is the group of an object: those of its kind and namespace with the same values of the labels.
func (p *Policy) group(key object.Key, m *metav1.ObjectMeta) due.Group {
	name := key.Kind + "/" + key.Namespace
	for _, label := range p.GroupBy {
		name += "/" + m.Labels[label]
	}
	return due.Group{Policy: p.groups(), Name: name, Newest: p.Newest, Acts: p.Started()}
}

// lastWrite is when a client last set a field that is not of the status, by the managed fields: so heartbeats in a status do not
// count. Neither does a write that only removes fields, because managed fields do not show it.
func lastWrite(m *metav1.ObjectMeta) time.Time {
	last := m.CreationTimestamp.Time
	for _, f := range m.ManagedFields {
		if f.Time != nil && f.Subresource != "status" && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// transition is when the first of the policy's conditions that hold came to hold.
func (p *Policy) transition(held func() map[statusCondition]time.Time) (first time.Time) {
	for _, w := range p.Conditions {
		w.Status = cmp.Or(w.Status, string(metav1.ConditionTrue))
		first = earliest(first, held()[w])
	}
	return first
}

// transitions returns since when conditions of an object hold, the first of those with the same type and status. It parses the
// body once, however many policies ask, and not at all if none does.
func transitions(body []byte) func() map[statusCondition]time.Time {
	return sync.OnceValue(func() map[statusCondition]time.Time {
		var o struct {
			Status struct {
				Conditions []struct {
					statusCondition
					LastTransitionTime metav1.Time `json:"lastTransitionTime"`
				} `json:"conditions"`
			} `json:"status"`
		}
		if json.Unmarshal(body, &o) != nil {
			return nil // not in the form of conditions
		}
		held := map[statusCondition]time.Time{}
		for _, c := range o.Status.Conditions {
			held[c.statusCondition] = earliest(held[c.statusCondition], c.LastTransitionTime.Time)
		}
		return held
	})
}
