package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestDeleteAll: the deletes share commits, keep their order, and fail one by one.
func TestDeleteAll(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		var requests []DeleteRequest
		for i := range 5 {
			o := create(t, s.Store, newRequest("a", fmt.Sprint(i)))
			requests = append(requests, DeleteRequest{Key: o.Key})
		}
		remove(t, s.Store, requests[1].Key)
		wrong := types.UID("another")
		requests[2].Options.Preconditions = &metav1.Preconditions{UID: &wrong}
		requests[4].Key.Name = ""
		before := s.Revision()
		results, errs := s.DeleteAll(t.Context(), requests)
		for i, want := range []object.Code{0, object.NotFound, object.Conflict, 0, object.BadRequest} {
			if want == 0 && errs[i] != nil || want != 0 && !object.Is(errs[i], want) {
				t.Errorf("delete %d: %v, want code %v", i, errs[i], want)
			}
		}
		if got := []int64{results[0].Object.Revision, results[3].Object.Revision, s.Revision()}; !slices.Equal(got, []int64{before + 1, before + 2, before + 2}) {
			t.Errorf("revisions %v after %d: the deletes are not in order", got, before)
		}
		if _, err := s.Get(t.Context(), requests[2].Key); err != nil {
			t.Errorf("the delete with a wrong uid removed its object: %v", err)
		}
	})
}

// TestDeleteAllCauses: deletes that share a commit keep their causes apart.
func TestDeleteAllCauses(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := run(t, Options{DB: db, Archive: ArchiveOptions{For: time.Hour}})
		var requests []DeleteRequest
		for i := range 2 * minSet {
			o := create(t, s.Store, newRequest("", fmt.Sprint(i), func(m *metav1.ObjectMeta) { m.UID = types.UID(fmt.Sprint("uid-", i)) }))
			requests = append(requests, DeleteRequest{Key: o.Key, Actor: fmt.Sprint("actor-", i), RequestID: fmt.Sprint("request-", i)})
		}
		if _, errs := s.DeleteAll(t.Context(), requests); slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			t.Fatal(errs)
		}
		for i := range requests {
			a, err := s.Reader().LastArchived(t.Context(), ArchiveFilter{UID: types.UID(fmt.Sprint("uid-", i))})
			if err != nil || a == nil {
				t.Fatalf("object %d is not archived: %v", i, err)
			}
			got := []string{a.Name, a.Actor, a.Requester, a.RequestID, a.Cascade}
			if want := []string{fmt.Sprint(i), fmt.Sprint("actor-", i), fmt.Sprint("actor-", i), fmt.Sprint("request-", i), fmt.Sprint("uid-", i)}; !slices.Equal(got, want) {
				t.Errorf("the archive says %v, want %v", got, want)
			}
		}
	})
}
