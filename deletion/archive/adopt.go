package archive

import (
	"context"
	"regexp"

	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// adoptedCascade is what clients may call the cascade of a backup: no uid, which names another cascade, has these forms.
var adoptedCascade = regexp.MustCompile(`^backup-[a-z0-9-]{1,80}$`)

// adopt puts objects of a backup into the archive. Their uids are those that the client says, so it needs more than the
// right to restore: that to create archived objects, which only administrators have by default.
func (a *Archive) adopt(ctx context.Context, call kind.Call, spec v1.RestoreSpec) error {
	if !adoptedCascade.MatchString(spec.Cascade) || call.DryRun {
		return object.BadRequestf("spec.objects needs a spec.cascade %s, and no dry run but spec.dryRun", adoptedCascade)
	}
	adopted := make([]object.Object, len(spec.Objects))
	for i, o := range spec.Objects {
		m, err := object.ParseMeta(o.Object.Raw)
		if err != nil || m.UID == "" || m.Name == "" || o.Kind == "" {
			return object.BadRequestf("spec.objects[%d]: a kind and a stored object with a name and a uid are needed: %v", i, err)
		}
		if err := call.Client.MayResource("create", schema.GroupResource{Group: v1.GroupVersion.Group, Resource: "archivedobjects"}, m.Namespace, string(m.UID)); err != nil {
			return err
		}
		adopted[i] = object.Object{Key: object.Key{Kind: o.Kind, Namespace: m.Namespace, Name: m.Name}, UID: m.UID, Body: o.Object.Raw}
	}
	return a.store.Transact(ctx, func(tx *store.Tx) error {
		for _, o := range adopted {
			if err := tx.Adopt(ctx, o, spec.Cascade, call.Client.Name); err != nil {
				return err
			}
		}
		return nil
	})
}

// kept is the result of an object of a backup that exists: it is as it is, and the result names what differs.
func (r *restoration) kept(ctx context.Context, c *candidate, now []byte, result *v1.RestoreResult) error {
	archived, err := r.store.Reader().LastArchived(ctx, store.ArchiveFilter{IDs: []int64{c.id}})
	if err != nil || unrestorable(archived, result) {
		return err
	}
	result.Reason, result.NewUID = "it exists", c.uid
	result.Changes, err = v1.Changes(archived.Body, now)
	r.note(c, c.uid, false)
	return err
}
