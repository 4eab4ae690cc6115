package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// row is a removed object.
type row = store.Archived

// filter is the conditions of a list; an empty string adds no condition.
type filter struct {
	store.ArchiveFilter
	uid string // each ignores it: see addOne
}

func (f filter) matches(r *row) bool {
	for _, c := range [][2]string{
		{f.Namespace, r.Namespace}, {f.Kind, r.Kind}, {f.Name, r.Name}, {f.Actor, r.Actor}, {f.Requester, r.Requester}, {f.Cascade, r.Cascade}, {f.uid, string(r.UID)},
	} {
		if c[0] != "" && c[0] != c[1] {
			return false
		}
	}
	return true
}

// each calls visit with up to limit rows, the newest first, that were removed
// before a revision (0: all).
func (a *Archive) each(ctx context.Context, f filter, before int64, limit int, visit func(*row) error) error {
	if err := a.store.Reader().Archived(ctx, f.ArchiveFilter, before, limit, visit); err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	return nil
}

// archived converts a row to the API type.
func (n *names) archived(r *row) (*v1.ArchivedObject, error) {
	gvk := n.gvk(r.Kind)
	removed := metav1.NewTime(time.UnixMilli(r.RemovedAt).UTC().Truncate(time.Second))
	o := &v1.ArchivedObject{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "ArchivedObject"},
		ObjectMeta: metav1.ObjectMeta{
			Name: string(r.UID), Namespace: r.Namespace, UID: r.UID, CreationTimestamp: removed,
			ResourceVersion: object.Object{Revision: r.ID}.ResourceVersion(),
		},
		Spec: v1.ArchivedObjectSpec{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: r.Key().Namespace, Name: r.Name, UID: r.UID,
			RemovedAt: removed, RequestedBy: r.Requester, RequestID: r.RequestID, Actor: r.Actor, Cascade: r.Cascade, Size: r.Size,
		},
	}
	if r.Body == nil {
		return o, nil
	}
	wire, err := n.wire(r, gvk)
	if err != nil {
		return nil, fmt.Errorf("show archived %s: %w", r.Key(), err)
	}
	o.Object = &runtime.RawExtension{Raw: wire}
	return o, nil
}

// wire encodes the original as clients see it.
func (n *names) wire(r *row, gvk schema.GroupVersionKind) ([]byte, error) {
	k, ok := n.served.Stored(r.Kind)
	if !ok || len(k.Versions) == 0 || k.Versions[0].Raw {
		_, body, err := object.CutVersion(r.Body)
		if err != nil {
			return nil, err
		}
		return object.AppendWire(nil, object.WirePrefix(gvk), body, r.BodyRevision), nil
	}
	decode := k.Versions[0].Decode
	if stored := k.Versions[0].DecodeStored; stored != nil {
		decode = stored // a webhook must not delay the archive, nor make it unreadable
	}
	obj, err := decode(r.Body, object.Object{Revision: r.BodyRevision}.ResourceVersion())
	if err != nil {
		return nil, err
	}
	return json.Marshal(obj)
}
