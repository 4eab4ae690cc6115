package kind

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/exeunt/exeunt/lifecycle"
)

// Registry is the current set of kinds. Reads take a snapshot without a lock. A
// change replaces the snapshot and closes the channel of Changed.
type Registry struct {
	mu       sync.Mutex // serializes changes
	current  atomic.Pointer[Snapshot]
	followMu sync.Mutex
	changed  chan struct{} // guarded by followMu; closed when the snapshot changes
}

// Snapshot is an immutable set of kinds.
type Snapshot struct {
	Kinds     []*Kind // sorted by group, then plural
	resources map[schema.GroupVersionResource]*Version
	storage   map[string]*Kind
	named     map[schema.GroupKind]*Kind
}

// NewRegistry creates a registry with these kinds.
func NewRegistry(kinds []*Kind) *Registry {
	r := &Registry{changed: make(chan struct{})}
	r.current.Store(newSnapshot(kinds))
	return r
}

func newSnapshot(kinds []*Kind) *Snapshot {
	s := &Snapshot{resources: map[schema.GroupVersionResource]*Version{}, storage: map[string]*Kind{}, named: map[schema.GroupKind]*Kind{}}
	s.Kinds = append(s.Kinds, kinds...)
	slices.SortStableFunc(s.Kinds, func(a, b *Kind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Plural, b.Plural))
	})
	for _, k := range s.Kinds {
		if _, taken := s.storage[k.Storage]; !taken || StorageName(k.Group, k.Plural) == k.Storage {
			s.storage[k.Storage] = k
		}
		s.named[schema.GroupKind{Group: k.Group, Kind: k.Name}] = k
		for _, v := range k.Versions {
			s.resources[v.Resource()] = v
		}
	}
	return s
}

// Snapshot returns the current kinds.
func (r *Registry) Snapshot() *Snapshot { return r.current.Load() }

// Changed returns the current kinds and a channel that is closed when they change.
func (r *Registry) Changed() (*Snapshot, <-chan struct{}) {
	r.followMu.Lock()
	defer r.followMu.Unlock()
	return r.current.Load(), r.changed
}

// Put adds kinds. Each replaces the kind with the same storage name and group.
func (r *Registry) Put(kinds ...*Kind) {
	r.change(func(old *Kind) bool {
		return !slices.ContainsFunc(kinds, func(k *Kind) bool { return old.Storage == k.Storage && old.Group == k.Group })
	}, kinds...)
}

// Replace changes many kinds at once, by storage name: nil removes one.
func (r *Registry) Replace(changed map[string]*Kind) {
	var add []*Kind
	for _, k := range changed {
		if k != nil {
			add = append(add, k)
		}
	}
	r.change(func(old *Kind) bool { _, replaced := changed[old.Storage]; return !replaced }, add...)
}

func (r *Registry) change(keep func(*Kind) bool, add ...*Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kinds []*Kind
	for _, k := range r.current.Load().Kinds {
		if keep(k) {
			kinds = append(kinds, k)
		}
	}
	next := newSnapshot(append(kinds, add...))
	r.followMu.Lock()
	defer r.followMu.Unlock()
	r.current.Store(next)
	close(r.changed)
	r.changed = make(chan struct{})
}

// Lookup finds a served version by its resource.
func (s *Snapshot) Lookup(gvr schema.GroupVersionResource) (*Version, bool) {
	v, ok := s.resources[gvr]
	return v, ok
}

// Stored finds a kind by its storage name.
func (s *Snapshot) Stored(storage string) (*Kind, bool) {
	k, ok := s.storage[storage]
	return k, ok
}

// Rules returns the deletion rules of a kind by its storage name. Those of a kind that is no longer
// served are the default ones.
func (s *Snapshot) Rules(storage string) lifecycle.Rules {
	if k, ok := s.storage[storage]; ok {
		return k.Rules
	}
	return lifecycle.Rules{}
}

// OfGroupKind finds a kind by group and kind name, in any version.
func (s *Snapshot) OfGroupKind(gk schema.GroupKind) (*Kind, bool) {
	k, ok := s.named[gk]
	return k, ok
}

// Named finds a kind by group, version and kind name; nil if not found.
func (s *Snapshot) Named(gvk schema.GroupVersionKind) *Kind {
	for _, k := range s.OfGroup(gvk.Group) {
		if k.Name != gvk.Kind {
			continue
		}
		for _, v := range k.Versions {
			if v.GVK.Version == gvk.Version {
				return k
			}
		}
	}
	return nil
}

// Names returns the kind and apiVersion that clients use for a storage name. For a
// kind that is no longer served, it returns plural and group.
func (s *Snapshot) Names(storage string) (kind, apiVersion string) {
	if k, ok := s.storage[storage]; ok && len(k.Versions) > 0 {
		return k.Name, k.Versions[0].GVK.GroupVersion().String()
	}
	kind, apiVersion, _ = strings.Cut(storage, ".")
	return kind, apiVersion
}

// GroupVersions lists the served versions of a group in the order that Kubernetes
// gives version names, the preferred one first.
func (s *Snapshot) GroupVersions(group string) []string {
	seen := map[string]bool{}
	var out []string
	for _, k := range s.OfGroup(group) {
		for _, v := range k.Versions {
			if !seen[v.GVK.Version] {
				seen[v.GVK.Version] = true
				out = append(out, v.GVK.Version)
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return version.CompareKubeAwareVersionStrings(out[i], out[j]) > 0 })
	return out
}

// OfGroup lists the kinds of a group.
func (s *Snapshot) OfGroup(group string) []*Kind {
	from := sort.Search(len(s.Kinds), func(i int) bool { return s.Kinds[i].Group >= group })
	to := from
	for to < len(s.Kinds) && s.Kinds[to].Group == group {
		to++
	}
	return s.Kinds[from:to]
}

// Groups lists the groups, the core group first.
func (s *Snapshot) Groups() []string {
	var out []string
	for _, k := range s.Kinds {
		if len(out) == 0 || out[len(out)-1] != k.Group {
			out = append(out, k.Group)
		}
	}
	return out
}
