package gc

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// lookUp reads the owners of objects into s.owners, each once per transaction.
func (s *session) lookUp(ctx context.Context, metas []metav1.ObjectMeta) error {
	var b sqldb.Batch
	for i := range metas {
		for _, r := range metas[i].OwnerReferences {
			s.askOwner(&b, r.UID)
		}
	}
	if err := s.tx.Send(ctx, &b); err != nil {
		return fmt.Errorf("look up owners: %w", err)
	}
	return s.lookUpRemoved(ctx, metas)
}

// lookUpRemoved reads whether this server removed the owners that do not exist and
// whose kind is not served.
func (s *session) lookUpRemoved(ctx context.Context, metas []metav1.ObjectMeta) error {
	var b sqldb.Batch
	for i := range metas {
		for j := range metas[i].OwnerReferences {
			r := &metas[i].OwnerReferences[j]
			owner := s.owners[r.UID]
			if !owner.Exists && !owner.Removed && !Identify(s.kinds, ReferenceOf(r), owner).Served {
				s.askRemoved(&b, r.UID)
			}
		}
	}
	if err := s.tx.Send(ctx, &b); err != nil {
		return fmt.Errorf("look up removed owners: %w", err)
	}
	return nil
}

func (s *session) askRemoved(b *sqldb.Batch, uid types.UID) {
	b.Query(func(row sqldb.Row) error {
		o := Owner{Removed: true}
		if err := row.Scan(&o.WasInside); err != nil {
			return err
		}
		s.owners[uid] = o
		return nil
	}, removedOwner, string(uid))
}

// canJudge reports whether Classify can decide about an absent owner for at least
// one dependent: this server removed it, or a reference names a served kind.
func (s *session) canJudge(ctx context.Context, uid types.UID) (bool, error) {
	known := s.owners[uid].Removed
	var b sqldb.Batch
	if !known {
		s.askRemoved(&b, uid)
	}
	b.Query(func(row sqldb.Row) error {
		var r Reference
		if err := row.Scan(&r.Group, &r.Kind); err != nil {
			return err
		}
		known = known || Identify(s.kinds, r, Owner{}).Served
		return nil
	}, kindsReferred, string(uid))
	if err := s.tx.Send(ctx, &b); err != nil {
		return false, fmt.Errorf("look up kinds of the owner: %w", err)
	}
	return known || s.owners[uid].Removed, nil
}

func (s *session) askOwner(b *sqldb.Batch, uid types.UID) {
	if _, known := s.owners[uid]; known {
		return
	}
	s.owners[uid] = Owner{}
	b.Query(func(row sqldb.Row) error {
		var o Owner
		var deletion, finalizing int64
		if err := row.Scan(&o.Kind, &o.Namespace, &o.Name, &deletion, &finalizing); err != nil {
			return err
		}
		o.Exists = true
		o.Foreground, o.Leaving = waits(deletion, finalizing)
		s.owners[uid] = o
		return nil
	}, ownerByUID, string(uid))
}

// waits returns what an owner waits for, from the columns of its head. An owner
// that the guard holds is still solid for its dependents.
func waits(deletion, finalizing int64) (foreground, leaving bool) {
	if deletion == 0 || finalizing&store.FinalizeConfirm != 0 {
		return false, false
	}
	return finalizing&store.FinalizeForeground != 0, finalizing&store.FinalizeGrace != 0
}

func (s *session) exists(ctx context.Context, statement string, args ...any) (bool, error) {
	found := false
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		var one int64
		found = true
		return row.Scan(&one)
	}, statement, args...)
	err := s.tx.Send(ctx, &b)
	return found, err
}

// query reads objects.
func (s *session) query(ctx context.Context, statement string, args ...any) ([]*item, error) {
	var out []*item
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		o := &item{}
		var uid string
		if err := row.Scan(&o.ID, &uid, &o.Kind, &o.Namespace, &o.Name, &o.Revision, &o.deletion, &o.finalizing, &o.parent, &o.Body); err != nil {
			return err
		}
		o.UID, o.Deleting = types.UID(uid), o.deletion != 0
		out = append(out, o)
		return s.tx.Unseal(&o.Stored)
	}, statement, args...)
	if err := s.tx.Send(ctx, &b); err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	return out, nil
}
