package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// row is a removed object.
type row struct {
	id           int64
	uid          types.UID
	kind         string // storage name
	namespace    string // a Namespace is in itself
	name         string
	removedAt    int64
	actor        string
	requester    string // the client whose delete began the cascade; may be the actor
	cascade      string
	size         int64
	bodyRevision int64  // 0: not kept
	body         []byte // nil: not kept
}

// key returns the key that the object had.
func (r *row) key() object.Key {
	k := object.Key{Kind: r.kind, Namespace: r.namespace, Name: r.name}
	if r.kind == object.Namespaces {
		k.Namespace = ""
	}
	return k
}

// filter is the conditions of a list; an empty string is no condition.
type filter struct {
	namespace, kind, name, actor, requester, cascade string
	uid                                              string // find ignores it: see addOne
}

func (f filter) matches(r *row) bool {
	for _, c := range [][2]string{
		{f.namespace, r.namespace}, {f.kind, r.kind}, {f.name, r.name}, {f.actor, r.actor}, {f.requester, r.requester}, {f.cascade, r.cascade}, {f.uid, string(r.uid)},
	} {
		if c[0] != "" && c[0] != c[1] {
			return false
		}
	}
	return true
}

// find calls visit with up to limit rows, the newest first, that were removed
// before a revision (0: all).
func (a *Archive) find(ctx context.Context, f filter, before int64, limit int, visit func(*row) error) error {
	if before <= 0 {
		before = math.MaxInt64
	}
	statement, args := listArchived, []any{before, f.namespace, f.kind, f.name, f.actor, f.requester}
	if f.cascade != "" {
		statement, args = listCascade, append(args, f.cascade)
	}
	return a.query(ctx, statement, append(args, int64(limit)), visit)
}

// one reads the row of a statement; nil if there is none.
func (a *Archive) one(ctx context.Context, statement string, args ...any) (*row, error) {
	var found *row
	err := a.query(ctx, statement, args, func(r *row) error {
		found = r
		return nil
	})
	return found, err
}

func (a *Archive) query(ctx context.Context, statement string, args []any, visit func(*row) error) error {
	rows, err := a.db.Query(ctx, statement, args...)
	if err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	defer func() { _ = rows.Close() }() // closed below; for early returns
	for rows.Next() {
		r := &row{}
		err := rows.Scan(&r.id, (*string)(&r.uid), &r.kind, &r.namespace, &r.name, &r.removedAt, &r.actor, &r.requester, &r.cascade, &r.size, &r.bodyRevision, &r.body)
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if err := a.unseal(r); err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if err := visit(r); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// unseal decrypts the body of a row.
func (a *Archive) unseal(r *row) error {
	o := object.Object{Key: r.key(), UID: r.uid, Body: r.body}
	err := a.store.Unseal(&o)
	r.body = o.Body
	return err
}

// archived converts a row to the API type.
func (n *names) archived(r *row) (*v1.ArchivedObject, error) {
	gvk := n.gvk(r.kind)
	removed := metav1.NewTime(time.UnixMilli(r.removedAt).UTC().Truncate(time.Second))
	o := &v1.ArchivedObject{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "ArchivedObject"},
		ObjectMeta: metav1.ObjectMeta{
			Name: string(r.uid), Namespace: r.namespace, UID: r.uid, CreationTimestamp: removed,
			ResourceVersion: object.Object{Revision: r.id}.ResourceVersion(),
		},
		Spec: v1.ArchivedObjectSpec{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: r.key().Namespace, Name: r.name, UID: r.uid,
			RemovedAt: removed, RequestedBy: r.requester, Actor: r.actor, Cascade: r.cascade, Size: r.size,
		},
	}
	if r.body == nil {
		return o, nil
	}
	wire, err := n.wire(r, gvk)
	if err != nil {
		return nil, fmt.Errorf("show archived %s: %w", r.key(), err)
	}
	o.Object = &runtime.RawExtension{Raw: wire}
	return o, nil
}

// wire encodes the original as clients see it.
func (n *names) wire(r *row, gvk schema.GroupVersionKind) ([]byte, error) {
	k, ok := n.served.Stored(r.kind)
	if !ok || len(k.Versions) == 0 || k.Versions[0].Raw {
		return object.AppendWire(nil, object.WirePrefix(gvk), r.body, r.bodyRevision), nil
	}
	obj, err := k.Versions[0].Decode(r.body, object.Object{Revision: r.bodyRevision}.ResourceVersion())
	if err != nil {
		return nil, err
	}
	return json.Marshal(obj)
}
