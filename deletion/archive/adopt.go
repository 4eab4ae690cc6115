package archive

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/internal/pattern"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// adoptedCascade is what clients may call the cascade of a backup: no uid, which names another cascade, has these forms.
var adoptedCascade = pattern.New(`^backup-[a-z0-9-]{1,80}$`)

// What stored objects can have as kind and uid.
var (
	adoptedKind = pattern.New(`^[a-z0-9.-]{1,253}$`)
	adoptedUID  = pattern.New(`^[A-Za-z0-9-]{1,64}$`)
)

// adopt puts objects of a backup into the archive. Their uids are those that the client says, so it needs more than the
// right to restore: that to create archived objects, which only administrators have by default.
func (a *Archive) adopt(ctx context.Context, call kind.Call, spec v1.RestoreSpec) error {
	if !adoptedCascade().MatchString(spec.Cascade) || call.DryRun {
		return object.BadRequestf("spec.objects needs a spec.cascade %s, and no dry run but spec.dryRun", adoptedCascade())
	}
	adopted := make([]object.Object, len(spec.Objects))
	for i, o := range spec.Objects {
		m, err := object.ParseMeta(o.Object.Raw)
		if err != nil || string(m.UID) == spec.Cascade || !a.adoptable(o.Kind, &m) {
			return object.BadRequestf("spec.objects[%d]: a kind and a stored object with the scope of the kind, a name and a uid are needed: %v", i, err)
		}
		if err := call.Client.MayResource("create", schema.GroupResource{Group: v1.GroupVersion.Group, Resource: "archivedobjects"}, m.Namespace, string(m.UID)); err != nil {
			return err
		}
		adopted[i] = object.Object{Key: object.Key{Kind: o.Kind, Namespace: m.Namespace, Name: m.Name}, UID: m.UID, Body: o.Object.Raw}
	}
	for group := range slices.Chunk(adopted, groupSize) { // the writes of other clients wait for a transaction
		err := a.store.Transact(ctx, func(tx *store.Tx) error {
			for _, o := range group {
				if err := tx.Adopt(ctx, o, spec.Cascade, call.Client.Name); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// adoptable reports whether a stored object can have the kind, and the namespace, the name and the uid.
func (a *Archive) adoptable(storage string, m *metav1.ObjectMeta) bool {
	if k, served := a.kinds.Snapshot().Stored(storage); served && k.Namespaced != (m.Namespace != "") {
		return false
	}
	return adoptedKind().MatchString(storage) && adoptedUID().MatchString(string(m.UID)) && max(len(m.Name), len(m.Namespace)) <= 253 &&
		object.NameProblem(m.Name) == "" && (m.Namespace == "" || object.NameProblem(m.Namespace) == "")
}

// kept is the result of an object of a backup that exists: it is as it is, and the result names what differs.
func (r *restoration) kept(ctx context.Context, c *candidate, now []byte, result *v1.RestoreResult) error {
	archived, err := r.store.Reader().LastArchived(ctx, store.ArchiveFilter{IDs: []int64{c.id}})
	if err != nil || unrestorable(archived, result) {
		return err
	}
	result.Reason, result.NewUID = "it exists", c.uid
	r.note(c, c.uid, false)
	return r.compare(c, archived.Body, now, result)
}

// ownUID refuses an object of a backup whose uid an object with another key has, or had: the uid is what a client says.
func (r *restoration) ownUID(ctx context.Context, c *candidate) error {
	if c.id > 0 {
		return nil
	}
	heads, err := r.store.Reader().Heads(ctx, []types.UID{c.uid})
	if err != nil {
		return err
	}
	h, taken := heads[c.uid]
	if taken = taken && h.Key != c.key; !taken {
		archived, err := r.byUID(ctx, c.uid)
		if err != nil {
			return err
		}
		taken = archived != nil && archived.ID > 0 && archived.Key() != c.key
	}
	if taken {
		return refusal{errors.New("another object has its uid")}
	}
	return nil
}

// compare adds to the result what differs. Results are stored as they are: those of a kind that the database has sealed
// name the fields only.
func (r *restoration) compare(c *candidate, was, is []byte, result *v1.RestoreResult) (err error) {
	result.Changes, err = v1.Changes(was, is)
	r.hideSealed(c.key.Kind, result.Changes)
	return err
}

// hideSealed hides the values of changes of a kind that the database has sealed.
func (r *restoration) hideSealed(storage string, changes []v1.Change) {
	if !r.store.Seals(storage) {
		return
	}
	hide := func(value *string) {
		if *value != "" {
			*value = "…"
		}
	}
	for i := range changes {
		hide(&changes[i].Was)
		hide(&changes[i].Is)
	}
}
