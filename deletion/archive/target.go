package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	cascade "github.com/exeunt/exeunt/store/cascades"
)

// target is what a Restore means: one object, or all of a cascade. It is found once, when the
// client asks, so later removals do not change it. One of UID and Cascade is set.
type target struct {
	UID     types.UID `json:"uid,omitempty"`
	Cascade string    `json:"cascade,omitempty"`
	// Key is of the object; of a cascade: of its root, or of the first object that the client may get.
	Key object.Key `json:"key"`
	// To is the revision to which a revert leads; 0: it is none.
	To         int64 `json:"to,omitempty"`
	WithStatus bool  `json:"withStatus,omitempty"`
}

// target finds what a spec means. What the client may not get does not exist. An object that
// is being deleted comes before a removed one of its name or uid: it is the newer life.
func (a *Archive) target(ctx context.Context, client kind.Client, n *names, spec v1.RestoreSpec) (t target, err error) {
	if spec.To != "" {
		return a.targetRevert(ctx, client, n, spec)
	}
	named := 0
	for _, is := range []bool{spec.UID != "", spec.Cascade != "", spec.Object != nil} {
		if is {
			named++
		}
	}
	if named != 1 {
		return t, object.BadRequestf("spec: exactly one of uid, cascade and object must be set, not %d", named)
	}
	if spec.Cascade != "" {
		if spec.WithCascade {
			return t, object.BadRequestf("spec: withCascade is for uid or object; cascade restores the whole cascade anyway")
		}
		return a.targetCascade(ctx, client, spec.Cascade)
	}
	missing := "no archived object had the uid " + string(spec.UID)
	find := a.byUIDOf(spec.UID)
	if o := spec.Object; o != nil {
		missing = fmt.Sprintf("no archived %s is named %s in namespace %q", o.Kind, o.Name, o.Namespace)
		if find, err = a.byName(ctx, client, n, *o); err != nil {
			return t, err
		}
	}
	uid, key, cascade, err := find(ctx)
	if err != nil {
		return t, err
	}
	if uid == "" || client.May("get", key) != nil {
		return t, object.BadRequestf("%s", missing)
	}
	if spec.WithCascade {
		return target{Cascade: cascade, Key: key}, nil
	}
	return target{UID: uid, Key: key}, nil
}

// finder looks for an object that is being deleted or removed, and its cascade. The uid is empty
// if there is none.
type finder func(ctx context.Context) (uid types.UID, key object.Key, cascade string, err error)

func (a *Archive) byUIDOf(uid types.UID) finder {
	return func(ctx context.Context) (types.UID, object.Key, string, error) {
		heads, err := a.store.Reader().Heads(ctx, []types.UID{uid})
		h, found := heads[uid]
		if err != nil || found && h.Deletion != 0 {
			return a.live(ctx, h, err)
		}
		r, err := a.byUID(ctx, uid)
		if err != nil || r == nil {
			return "", object.Key{}, "", err
		}
		return r.UID, r.Key(), r.Cascade, nil
	}
}

// keyOf is the key of an object that the client may get.
func (a *Archive) keyOf(ctx context.Context, client kind.Client, n *names, o v1.ObjectName) (key object.Key, err error) {
	if o.Kind == "" || o.Name == "" {
		return key, object.BadRequestf("spec.object: kind and name must be set")
	}
	storage, err := a.storageOf(ctx, client, n, o)
	if err != nil {
		return key, err
	}
	key = object.Key{Kind: storage, Namespace: o.Namespace, Name: o.Name}
	if n.clusterScoped(storage) {
		key.Namespace = "" // clients often send a namespace for cluster-scoped kinds too
	}
	return key, client.May("get", key)
}

func (a *Archive) byName(ctx context.Context, client kind.Client, n *names, o v1.ObjectName) (finder, error) {
	key, err := a.keyOf(ctx, client, n, o)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (types.UID, object.Key, string, error) {
		h, found, err := a.store.Reader().Head(ctx, key)
		if err != nil || found && h.Deletion != 0 {
			return a.live(ctx, h, err)
		}
		c, err := a.newest(ctx, client, o, key)
		if err != nil || c == nil {
			return "", object.Key{}, "", err
		}
		return c.uid, c.key, c.cascade, nil
	}, nil
}

// live completes what a finder returns of an object that is being deleted.
func (a *Archive) live(ctx context.Context, h store.Head, err error) (types.UID, object.Key, string, error) {
	if err != nil {
		return "", object.Key{}, "", fmt.Errorf("look for a deletion to call off: %w", err)
	}
	origin, err := a.store.OriginOf(ctx, h.UID)
	return h.UID, h.Key, origin.Cascade, err
}

func (a *Archive) targetCascade(ctx context.Context, client kind.Client, id string) (target, error) {
	t := target{Cascade: id}
	found, err := a.find(ctx, client, t)
	switch {
	case err != nil:
		return t, err
	case len(found.removed) > 0:
		t.Key = found.removed[0].key
	default:
		t.Key = found.deleting[0].Key
	}
	if root, known, err := cascade.Root(ctx, a.store.Reader(), id); err != nil {
		return t, err
	} else if known && client.May("get", root.Key) == nil {
		t.Key = root.Key
	}
	return t, nil
}

// found is the objects of a target that the client may get and create.
type found struct {
	removed  []*candidate
	deleting []store.Head
	denied   int                // how many others there are
	last     int64              // the newest removal that was read
	live     map[types.UID]bool // all that are being deleted

	revert *reversal // nil: the target is no revert
	before int64     // the revision with which a revert compared
	// operation is the Audit-Id of what a revert writes.
	operation string
}

// find reads the objects of a target. Errors: BadRequest if the client may get none,
// Forbidden if it may create none.
func (a *Archive) find(ctx context.Context, client kind.Client, t target) (f found, err error) {
	if t.To != 0 {
		return a.findRevert(ctx, client, t)
	}
	// Those being deleted first: what is removed meanwhile is among the removed ones.
	if f.deleting, err = a.store.Reader().DeletingFor(ctx, t.UID, t.Cascade); err != nil {
		return f, fmt.Errorf("read what is being deleted: %w", err)
	}
	f.live = map[types.UID]bool{}
	for _, h := range f.deleting {
		f.live[h.UID] = true
	}
	missing := "no archived object had the uid " + string(t.UID)
	if t.Cascade != "" {
		missing = "no archived object belongs to the cascade " + t.Cascade
		f.removed, err = a.cascade(ctx, t.Cascade)
	} else if len(f.deleting) == 0 {
		var r *row
		if r, err = a.byUID(ctx, t.UID); r != nil {
			f.removed = []*candidate{newCandidate(r)}
		}
	}
	if err != nil {
		return f, err
	}
	for _, c := range f.removed {
		f.last = max(f.last, c.id)
	}
	// What was restored and is being deleted again has a result as that.
	f.removed = slices.DeleteFunc(f.removed, func(c *candidate) bool { return f.live[c.uid] })
	all := len(f.removed) + len(f.deleting)
	keep := func(verb string) (denial error) {
		refused := func(key object.Key) bool {
			err := client.May(verb, key)
			if denial == nil {
				denial = err
			}
			return err != nil
		}
		f.removed = slices.DeleteFunc(f.removed, func(c *candidate) bool { return refused(c.key) })
		f.deleting = slices.DeleteFunc(f.deleting, func(h store.Head) bool { return refused(h.Key) })
		return denial
	}
	if _ = keep("get"); len(f.removed)+len(f.deleting) == 0 {
		return f, object.BadRequestf("%s", missing)
	}
	defaults := len(f.removed)
	f.removed = withoutDefaults(f.removed)
	all -= defaults - len(f.removed)
	if denial := keep("create"); len(f.removed)+len(f.deleting) == 0 && denial != nil {
		return f, denial
	}
	f.denied = all - len(f.removed) - len(f.deleting)
	return f, nil
}

// names has the names of kinds: of served ones, and of those whose definition was
// removed, from archive_kinds. It is read once per request.
type names struct {
	served  *kind.Snapshot
	removed map[string]removedKind // by storage name; none of them is served
}

// removedKind is a kind whose CustomResourceDefinition was removed.
type removedKind struct {
	gvk              schema.GroupVersionKind
	plural, singular string
	short            []string
	namespaced       bool
}

func (a *Archive) names(ctx context.Context) (*names, error) {
	// Served kinds first: a kind that is removed meanwhile is in archive_kinds
	// already.
	n := &names{served: a.kinds.Snapshot(), removed: map[string]removedKind{}}
	kinds, err := a.store.Reader().ArchivedKinds(ctx)
	if err != nil {
		return nil, fmt.Errorf("read archived kinds: %w", err)
	}
	for _, k := range kinds {
		removed := removedKind{
			gvk:    schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind},
			plural: k.Plural, singular: k.Singular, namespaced: k.Namespaced,
		}
		if err := json.Unmarshal([]byte(k.ShortNames), &removed.short); err != nil {
			return nil, fmt.Errorf("read archived kinds: %w", err)
		}
		if _, ok := n.served.Stored(k.Storage); !ok { // otherwise its definition exists again
			n.removed[k.Storage] = removed
		}
	}
	return n, nil
}

// gvk returns the names of a stored kind. For an unknown kind it uses the storage
// name.
func (n *names) gvk(storage string) schema.GroupVersionKind {
	if k, ok := n.served.Stored(storage); ok && len(k.Versions) > 0 {
		return k.Versions[0].GVK
	}
	if k, ok := n.removed[storage]; ok {
		return k.gvk
	}
	plural, group, _ := strings.Cut(storage, ".")
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: plural}
}

// clusterScoped reports whether the kind is known to be cluster-scoped.
func (n *names) clusterScoped(storage string) bool {
	if k, ok := n.served.Stored(storage); ok {
		return !k.Namespaced
	}
	k, ok := n.removed[storage]
	return ok && !k.namespaced
}

// storageOf finds the stored kind that a client means: by kind, plural,
// singular, short name or "plural.group", in any case. An apiVersion narrows
// it. Any other word may be the storage name of archived objects, if the client may get
// those. Error: BadRequest if neither the server nor the archive knows the kind.
func (a *Archive) storageOf(ctx context.Context, client kind.Client, n *names, o v1.ObjectName) (string, error) {
	apiVersion, word := o.APIVersion, o.Kind
	var group string
	if apiVersion != "" {
		gv, err := schema.ParseGroupVersion(apiVersion)
		if err != nil {
			return "", object.BadRequestf("apiVersion %q: %v", apiVersion, err)
		}
		group = gv.Group
	}
	found := n.find(apiVersion != "", group, word)
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", object.BadRequestf("kind %q is ambiguous: say one of %s", word, strings.Join(found, ", "))
	}
	storage := strings.ToLower(word)
	if group != "" {
		storage = kind.StorageName(group, storage)
	}
	known := false
	if client.May("get", object.Key{Kind: storage, Namespace: o.Namespace, Name: o.Name}) == nil {
		var err error
		if known, err = a.store.Reader().ArchivesKind(ctx, storage); err != nil {
			return "", fmt.Errorf("look for kind %s: %w", storage, err)
		}
	}
	if !known {
		return "", object.BadRequestf("kind %q is not known: the server does not serve it, and no object of it is in the archive", word)
	}
	return storage, nil
}

// find lists the storage names of the kinds that have the word as a name.
func (n *names) find(grouped bool, group, word string) (found []string) {
	for _, k := range n.served.Kinds {
		if k.Ephemeral || k.Source != nil || grouped && k.Group != group || slices.Contains(found, k.Storage) {
			continue
		}
		if hasName(word, k.Group, append([]string{k.Name, k.Plural, k.Singular, k.Storage}, k.ShortNames...)) {
			found = append(found, k.Storage)
		}
	}
	for storage, k := range n.removed {
		if grouped && k.gvk.Group != group {
			continue
		}
		if hasName(word, k.gvk.Group, append([]string{k.gvk.Kind, k.plural, k.singular, storage}, k.short...)) {
			found = append(found, storage)
		}
	}
	slices.Sort(found)
	return found
}

// hasName reports whether a word is one of the names, alone or with the group.
func hasName(word, group string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return name != "" && (strings.EqualFold(name, word) || strings.EqualFold(kind.StorageName(group, name), word))
	})
}
