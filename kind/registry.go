package kind

import (
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Registry is the set of kinds that exist now. Reads take a snapshot without
// locking; a change replaces the snapshot and wakes those who follow it.
type Registry struct {
	mu       sync.Mutex // guards writing
	current  atomic.Pointer[Snapshot]
	followMu sync.Mutex
	changed  chan struct{} // guarded by followMu; closed when the snapshot changes
}

// Snapshot is an immutable set of kinds.
type Snapshot struct {
	Kinds     []*Kind // by group, then plural
	resources map[schema.GroupVersionResource]*Version
	storage   map[string]*Kind
	named     map[schema.GroupKind]*Kind
}

// NewRegistry starts with these kinds.
func NewRegistry(kinds []*Kind) *Registry {
	r := &Registry{changed: make(chan struct{})}
	r.current.Store(newSnapshot(kinds))
	return r
}

func newSnapshot(kinds []*Kind) *Snapshot {
	s := &Snapshot{resources: map[schema.GroupVersionResource]*Version{}, storage: map[string]*Kind{}, named: map[schema.GroupKind]*Kind{}}
	s.Kinds = append(s.Kinds, kinds...)
	sort.SliceStable(s.Kinds, func(i, j int) bool {
		a, b := s.Kinds[i], s.Kinds[j]
		if a.Group != b.Group {
			return a.Group < b.Group
		}
		return a.Plural < b.Plural
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

// Snapshot returns the kinds as they are now.
func (r *Registry) Snapshot() *Snapshot { return r.current.Load() }

// Changed returns the kinds as they are now and a channel that is closed when
// they are no longer.
func (r *Registry) Changed() (*Snapshot, <-chan struct{}) {
	r.followMu.Lock()
	defer r.followMu.Unlock()
	return r.current.Load(), r.changed
}

// Put adds kinds, each in the place of one with the same storage name and
// group.
func (r *Registry) Put(kinds ...*Kind) {
	r.change(func(old *Kind) bool {
		return !slices.ContainsFunc(kinds, func(k *Kind) bool { return old.Storage == k.Storage && old.Group == k.Group })
	}, kinds...)
}

// Remove forgets the kind with this storage name.
func (r *Registry) Remove(storage string) {
	r.change(func(old *Kind) bool { return old.Storage != storage })
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

// OfGroupKind finds a kind by the name that clients use, in any version.
func (s *Snapshot) OfGroupKind(gk schema.GroupKind) (*Kind, bool) {
	k, ok := s.named[gk]
	return k, ok
}

// Named finds a kind by the name that clients use; nil: there is none.
func (s *Snapshot) Named(gvk schema.GroupVersionKind) *Kind {
	for _, k := range s.Kinds {
		if k.Group != gvk.Group || k.Name != gvk.Kind {
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

// Names is what clients call the kind with this storage name. One that nobody
// serves any more is called by its plural and group.
func (s *Snapshot) Names(storage string) (kind, apiVersion string) {
	if k, ok := s.storage[storage]; ok && len(k.Versions) > 0 {
		return k.Name, k.Versions[0].GVK.GroupVersion().String()
	}
	kind, apiVersion, _ = strings.Cut(storage, ".")
	return kind, apiVersion
}

// GroupVersions lists the served versions of a group, the preferred one first,
// in the order in which Kubernetes ranks version names.
func (s *Snapshot) GroupVersions(group string) []string {
	seen := map[string]bool{}
	var out []string
	for _, k := range s.Kinds {
		if k.Group != group {
			continue
		}
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
