package gc

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// lookUp finds out about the owners of objects, each once per transaction.
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
	return nil
}

func (s *session) askOwner(b *sqldb.Batch, uid types.UID) {
	if _, known := s.owners[uid]; known {
		return
	}
	s.owners[uid] = Owner{}
	b.Query(func(row sqldb.Row) error {
		var o Owner
		var deletion, finalizing int64
		if err := row.Scan(&o.Namespace, &deletion, &finalizing); err != nil {
			return err
		}
		o.Exists = true
		o.Foreground, o.Leaving = waits(deletion, finalizing)
		s.owners[uid] = o
		return nil
	}, ownerByUID, string(uid))
}

// waits reads what an owner waits for off its head. One that the guard holds does
// nothing yet: to its dependents it is as solid as before.
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
