package quota

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	arithmetic "k8s.io/apiserver/pkg/quota/v1"

	"github.com/exeunt/exeunt/store"
)

// page is how many objects are read at a time.
const page = 500

// space is a namespace that has quotas.
type space struct {
	entries []*entry // by name
	loaded  bool     // used is counted
	leaving map[string]leaving
}

// entry is one quota. Its fields are never changed in place, so that copies share them.
type entry struct {
	uid   string
	quota corev1.ResourceQuota // Status.Hard is Spec.Hard
	names []corev1.ResourceName
	used  corev1.ResourceList
}

// leaving is a pod that is being deleted. From a time on it uses nothing: its node may be
// lost, and the client must be able to replace it.
type leaving struct {
	until time.Time
	pod   *corev1.Pod
}

// readQuotas reads all quotas. It keeps the usage of those that are as before.
func (l *Ledger) readQuotas(ctx context.Context, at store.Locked) error {
	spaces := map[string]*space{}
	var namespace, name string
	for {
		found, err := at.Select(ctx, store.Selection{Kind: storage, Namespace: store.AllNamespaces, AfterNamespace: namespace, After: name, Limit: page})
		if err != nil {
			return err
		}
		for _, o := range found {
			e := &entry{uid: string(o.UID)}
			if err := json.Unmarshal(o.Body, &e.quota); err != nil {
				return fmt.Errorf("read %s: %w", o.Key, err)
			}
			e.quota.Status.Hard = e.quota.Spec.Hard
			e.names = arithmetic.ResourceNames(e.quota.Spec.Hard)
			if spaces[o.Namespace] == nil {
				spaces[o.Namespace] = &space{}
			}
			spaces[o.Namespace].entries = append(spaces[o.Namespace].entries, e)
		}
		if len(found) < page {
			break
		}
		last := found[len(found)-1]
		namespace, name = last.Namespace, last.Name
	}
	for namespace, s := range spaces {
		s.inherit(l.spaces[namespace])
	}
	l.spaces, l.known, l.changed = spaces, true, at.Quotas
	l.active.Store(len(spaces) > 0)
	return nil
}

// inherit takes the usage from the state before, if it counted the same quotas.
func (s *space) inherit(before *space) {
	if before == nil || !before.loaded {
		return
	}
	for _, e := range s.entries {
		i := slices.IndexFunc(before.entries, func(b *entry) bool { return b.uid == e.uid })
		if i < 0 || !equality.Semantic.DeepEqual(e.quota.Spec, before.entries[i].quota.Spec) {
			return
		}
		e.used = before.entries[i].used
	}
	s.loaded, s.leaving = true, before.leaving
}

// advance applies changes that the feed has, or that it had no room for. If they do not follow
// the ledger's revision, the next check reads the log, or counts again. The caller holds mu.
func (l *Ledger) advance(events []*store.Event) {
	if len(events) == 0 || events[0].Object.Revision != l.revision+1 {
		events = l.store.Since(l.revision)
	}
	for _, e := range events {
		l.apply(e)
		l.revision = e.Object.Revision
	}
}

func (l *Ledger) apply(e *store.Event) {
	s := l.spaces[e.Object.Namespace]
	if s == nil || !s.loaded {
		return
	}
	c := store.Change{Type: e.Type, Key: e.Object.Key, UID: string(e.Object.UID), Before: e.Previous, After: e.Object.Body}
	if e.Type == store.Removed {
		c.Before, c.After = e.Object.Body, nil
	}
	s.change(c)
}

// catchUp makes the ledger exact at the revision of a transaction. The caller holds mu.
func (l *Ledger) catchUp(ctx context.Context, at store.Locked) error {
	l.advance(nil)
	if l.revision >= at.Revision {
		return nil
	}
	if at.Compacted > l.revision || at.Revision-l.revision > maxGap {
		l.unload()
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(l.spaces)), func(s *space) bool { return s.loaded }) {
		if err := at.Changes(ctx, "", l.revision, at.Revision, l.apply); err != nil {
			l.unload() // some of the changes may be counted
			return err
		}
	}
	l.revision = at.Revision
	return nil
}

// unload makes the next check of each namespace count again.
func (l *Ledger) unload() {
	for _, s := range l.spaces {
		s.loaded = false
	}
}

// load counts what a namespace uses, as the transaction sees it.
func (s *space) load(ctx context.Context, r *store.Reader, namespace string) error {
	s.leaving = map[string]leaving{}
	kinds := map[string]bool{}
	for _, e := range s.entries {
		e.used = corev1.ResourceList{}
		for _, name := range e.names {
			e.used[name] = resource.Quantity{Format: resource.DecimalSI}
			for _, kind := range kindsOf(name) {
				kinds[kind] = true
			}
		}
	}
	for kind := range kinds {
		if err := s.loadKind(ctx, r, kind, namespace); err != nil {
			return err
		}
	}
	s.loaded = true
	return nil
}

func (s *space) loadKind(ctx context.Context, r *store.Reader, kind, namespace string) error {
	if !hasContent(kind) {
		n, err := r.Count(ctx, kind, namespace, math.MaxInt32)
		if err != nil {
			return err
		}
		for _, e := range s.entries {
			for name := range e.charge(kind, placeholder) {
				e.used[name] = *resource.NewQuantity(n, resource.DecimalSI)
			}
		}
		return nil
	}
	for after := ""; ; {
		found, err := r.Select(ctx, store.Selection{Kind: kind, Namespace: namespace, After: after, Limit: page})
		if err != nil {
			return err
		}
		for _, o := range found {
			s.change(store.Change{Type: store.Created, Key: o.Key, UID: string(o.UID), After: o.Body})
			after = o.Name
		}
		if len(found) < page {
			return nil
		}
	}
}

// change applies a change, and returns the uids of the quotas whose usage it changes.
func (s *space) change(c store.Change) (touched []string) {
	if !s.counts(c.Key.Kind) || c.Type == store.Updated && !hasContent(c.Key.Kind) {
		return nil
	}
	before, after := decode(c.Key.Kind, c.Before), decode(c.Key.Kind, c.After)
	for _, e := range s.entries {
		delta := arithmetic.RemoveZeros(arithmetic.Subtract(e.charge(c.Key.Kind, after), e.charge(c.Key.Kind, before)))
		if len(delta) == 0 {
			continue
		}
		if e.used != nil {
			e.used = arithmetic.Add(e.used, delta)
		}
		touched = append(touched, e.uid)
	}
	if s.leaving != nil {
		s.leaves(c.UID, after)
	}
	return touched
}

// leaves notes that a pod is being deleted, or gone.
func (s *space) leaves(uid string, after runtime.Object) {
	pod, ok := after.(*corev1.Pod)
	if !ok || pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		delete(s.leaving, uid)
		return
	}
	grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	s.leaving[uid] = leaving{until: pod.DeletionTimestamp.Add(grace), pod: pod}
}

// counts reports whether a quota of the namespace counts a kind.
func (s *space) counts(kind string) bool {
	return slices.ContainsFunc(s.entries, func(e *entry) bool { return len(evaluatorFor(kind).MatchingResources(e.names)) > 0 })
}

// charge is what an object uses of a quota. Nil means nothing.
func (e *entry) charge(kind string, obj runtime.Object) corev1.ResourceList {
	if obj == nil {
		return nil
	}
	evaluator := evaluatorFor(kind)
	names := evaluator.MatchingResources(e.names)
	if len(names) == 0 {
		return nil
	}
	if match, err := evaluator.Matches(&e.quota, obj); err != nil || !match {
		return nil
	}
	usage, err := evaluator.Usage(obj)
	if err != nil {
		return nil
	}
	return arithmetic.Mask(usage, names)
}

// usedAt is the usage at a time: without the pods that left too long ago.
func (s *space) usedAt(e *entry, now time.Time) corev1.ResourceList {
	used := e.used
	for _, p := range s.leaving {
		if now.After(p.until) {
			gone := e.charge(pods, p.pod)
			delete(gone, countPods)
			used = arithmetic.Subtract(used, gone)
		}
	}
	return used
}

// nextLeave is how long it takes until the usage changes by time alone; 0 if it does not.
func (s *space) nextLeave(now time.Time) time.Duration {
	var next time.Duration
	for _, p := range s.leaving {
		if d := p.until.Sub(now); d >= 0 && (next == 0 || d < next) {
			next = d + time.Millisecond
		}
	}
	return next
}

// copy returns a space whose changes do not touch s.
func (s *space) copy() *space {
	out := &space{loaded: s.loaded, leaving: maps.Clone(s.leaving)}
	for _, e := range s.entries {
		own := *e
		out.entries = append(out.entries, &own)
	}
	return out
}

// addRegistry adds the bytes of the registry, which triggers count in the transactions of pushes. They queue
// this review again, so it may read an older count than the newest.
func (l *Ledger) addRegistry(ctx context.Context, uid types.UID, used corev1.ResourceList) error {
	var bytes int64
	found, err := l.db.Row(ctx, findRegistryBytes, []any{string(uid)}, &bytes)
	if err == nil && found {
		used[registryBytes] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	return err
}

const (
	registryBytes     = corev1.ResourceName("registry.exeunt.dev/bytes")
	findRegistryBytes = `SELECT bytes FROM registry_quotas WHERE uid = $1`
)
