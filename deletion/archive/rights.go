package archive

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// shownDenials is how many missing rights one refusal names.
const shownDenials = 10

// checkContent refuses a restore before its first object is written, if the client lacks a
// right that the content of an object needs: what it grants, an owner that it blocks, a
// confirmation that it carries. The error names the missing rights. The create of each
// object asks again, about the object as webhooks left it. What is being deleted comes back when
// it is gone: a client learns at once whether it may.
func (r *restoration) checkContent(ctx context.Context, f found, deleting bool) error {
	var ids []int64
	var uids []types.UID
	asked := map[string]bool{}
	restored := make(map[types.UID]bool, len(f.removed)+len(f.deleting))
	for _, c := range f.removed {
		restored[identity(c, r.reborn(c.key.Kind))] = true
		if c.demand != "" && !asked[c.demand] {
			asked[c.demand], ids = true, append(ids, c.id)
		}
	}
	for _, h := range f.deleting {
		restored[h.UID] = true
		if deleting && !h.Held() {
			uids = append(uids, h.UID)
		}
	}
	var denials []string
	missing := map[string]bool{}
	check := func(bodies []*row) error {
		for _, b := range bodies {
			denial, err := r.contentDenied(ctx, newCandidate(b), b.Body, restored)
			if err != nil {
				return err
			}
			if right := missingRight(denial); denial != "" && !missing[right] {
				missing[right], denials = true, append(denials, denial)
			}
		}
		return nil
	}
	for page := range slices.Chunk(ids, groupSize) {
		var bodies []*row
		err := r.store.Reader().Archived(ctx, store.ArchiveFilter{IDs: page}, 0, len(page), func(a *row) error {
			bodies = append(bodies, a)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if err := check(bodies); err != nil {
			return err
		}
	}
	for page := range slices.Chunk(uids, groupSize) {
		var bodies []*row
		err := r.store.Reader().AskedOf(ctx, page, func(o object.Object) {
			b := &row{UID: o.UID, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Body: o.Body}
			if d := newCandidate(b).demand; d != "" && !asked[d] {
				asked[d], bodies = true, append(bodies, b)
			}
		})
		if err != nil {
			return fmt.Errorf("read what is being deleted: %w", err)
		}
		if err := check(bodies); err != nil {
			return err
		}
	}
	if len(denials) == 0 {
		return nil
	}
	text := strings.Join(denials[:min(len(denials), shownDenials)], "; ")
	if more := len(denials) - shownDenials; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return object.Errorf(object.Forbidden, "nothing is restored, because you lack rights that the objects need: %s", text)
}

// contentDenied returns the denial of one object's content. References to owners that the
// object will come back without need no right.
func (r *restoration) contentDenied(ctx context.Context, c *candidate, body []byte, restored map[types.UID]bool) (string, error) {
	m, err := object.ParseMeta(body)
	if err != nil {
		return "", nil // its restore says so
	}
	var owners []metav1.OwnerReference
	for _, o := range m.OwnerReferences {
		found := restored[o.UID]
		if !found {
			if found, err = r.exists(ctx, o, c.key.Namespace); err != nil {
				return "", err
			}
		}
		if found {
			owners = append(owners, o)
		}
	}
	gvk := r.names.gvk(c.key.Kind)
	resource, _, _ := strings.Cut(c.key.Kind, ".")
	var obj runtime.Object
	if k, ok := r.names.served.Stored(c.key.Kind); ok && len(k.Versions) > 0 {
		if obj, err = k.Stored().Decode(body, ""); err != nil {
			return "", nil
		}
	} else {
		obj = &metav1.PartialObjectMetadata{ObjectMeta: m}
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return "", nil
	}
	accessor.SetOwnerReferences(owners)
	if err := r.client.MayContain(ctx, gvk.GroupVersion().WithResource(resource), obj); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// demand says which rights the content of an object may need beside create: for most objects,
// those on the owners that it blocks.
func demand(c *candidate, m *metav1.ObjectMeta) string {
	_, group, _ := strings.Cut(c.key.Kind, ".")
	if m.Annotations[lifecycle.ConfirmCascade] != "" || slices.Contains([]string{"rbac.authorization.k8s.io", "access.exeunt.dev"}, group) {
		return string(c.uid)
	}
	var blocked []string
	for _, o := range m.OwnerReferences {
		if o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion {
			blocked = append(blocked, string(o.UID))
		}
	}
	if len(blocked) == 0 {
		return ""
	}
	return c.key.Kind + " " + c.key.Namespace + " " + strings.Join(blocked, " ")
}

// missingRight returns what a denial says without the name of the object, so that a right which many objects need
// is named once.
func missingRight(denial string) string {
	if _, right, ok := strings.Cut(denial, " is forbidden: "); ok {
		return right
	}
	return denial
}
