package gc

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/graph"
)

// lookUp reads the owners of objects into s.owners, each once per transaction.
func (s *session) lookUp(ctx context.Context, metas []metav1.ObjectMeta) error {
	var unknown []types.UID
	for i := range metas {
		for _, r := range metas[i].OwnerReferences {
			if _, known := s.owners[r.UID]; !known {
				s.owners[r.UID] = Owner{}
				unknown = append(unknown, r.UID)
			}
		}
	}
	heads, err := s.tx.Heads(ctx, unknown)
	if err != nil {
		return fmt.Errorf("look up owners: %w", err)
	}
	for uid, h := range heads {
		s.owners[uid] = OwnerOf(h)
	}
	return s.lookUpRemoved(ctx, metas)
}

// lookUpRemoved reads whether this server removed the owners that do not exist and
// whose kind is not served.
func (s *session) lookUpRemoved(ctx context.Context, metas []metav1.ObjectMeta) error {
	var absent []types.UID
	for i := range metas {
		for j := range metas[i].OwnerReferences {
			r := &metas[i].OwnerReferences[j]
			owner := s.owners[r.UID]
			if !owner.Exists && !owner.Removed && !Identify(s.kinds, ReferenceOf(r), owner).Served {
				absent = append(absent, r.UID)
			}
		}
	}
	return s.askRemoved(ctx, absent)
}

func (s *session) askRemoved(ctx context.Context, uids []types.UID) error {
	removed, err := RemovedOwners(ctx, &s.tx.Reader, uids)
	maps.Copy(s.owners, removed)
	return err
}

// RemovedOwners reads which of some owners this server removed: those in the
// archive, and those whose review says so, also when the archive is off.
func RemovedOwners(ctx context.Context, r *store.Reader, uids []types.UID) (map[types.UID]Owner, error) {
	out := map[types.UID]Owner{}
	if len(uids) == 0 {
		return out, nil
	}
	err := sqldb.Each(ctx, r, func(row sqldb.Row) error {
		var uid types.UID
		o := Owner{Removed: true}
		err := row.Scan((*string)(&uid), &o.WasInside)
		out[uid] = o
		return err
	}, removedReviews[r.Engine()], sqldb.List(r.Engine(), uids))
	if err != nil {
		return nil, fmt.Errorf("look up removed owners: %w", err)
	}
	archived, err := r.Removed(ctx, uids)
	for uid, inside := range archived {
		out[uid] = Owner{Removed: true, WasInside: inside}
	}
	return out, err
}

// canJudge reports whether Classify can decide about an absent owner for at least
// one dependent: this server removed it, or a reference names a served kind.
func (s *session) canJudge(ctx context.Context, uid types.UID) (bool, error) {
	if !s.owners[uid].Removed {
		if err := s.askRemoved(ctx, []types.UID{uid}); err != nil {
			return false, err
		}
	}
	if s.owners[uid].Removed {
		return true, nil
	}
	named, err := graph.KindsNamed(ctx, s.tx, uid)
	if err != nil {
		return false, fmt.Errorf("look up kinds of the owner: %w", err)
	}
	return slices.ContainsFunc(named, func(k store.GroupKind) bool {
		return Identify(s.kinds, Reference{Group: k.Group, Kind: k.Kind}, Owner{}).Served
	}), nil
}

// Owners reads the input of Classify for some owners. Those that the database has
// nothing about are not in the answer.
func Owners(ctx context.Context, r *store.Reader, uids []types.UID) (map[types.UID]Owner, error) {
	heads, err := r.Heads(ctx, uids)
	if err != nil {
		return nil, err
	}
	absent := slices.DeleteFunc(slices.Clone(uids), func(uid types.UID) bool {
		_, exists := heads[uid]
		return exists
	})
	out, err := RemovedOwners(ctx, r, absent)
	for uid, h := range heads {
		out[uid] = OwnerOf(h)
	}
	return out, err
}

// OwnerOf is the owner with a head. One that the guard holds is still solid for
// its dependents.
func OwnerOf(h store.Head) Owner {
	acts := h.Deletion != 0 && !h.Held()
	return Owner{
		Exists: true, Kind: h.Kind, Namespace: h.Namespace, Name: h.Name,
		Foreground: acts && h.Finalizing&store.FinalizeForeground != 0,
		Leaving:    acts && h.Finalizing&store.FinalizeGrace != 0,
	}
}
