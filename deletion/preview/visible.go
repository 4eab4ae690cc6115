package preview

import (
	"context"
	"slices"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
)

// A question about one object reaches others, in other namespaces and of other kinds.
// The answer names those that the client may get, and counts the rest.

// mayGet returns a denial if the client may not get the object of a question. It does
// not say whether the object exists. A uid alone cannot be guessed: the answer is
// checked again with the object that was found.
func (s *Service) mayGet(ctx context.Context, ref v1.ObjectReference) error {
	if ref.Kind == "" || ref.Name == "" {
		return nil
	}
	r := s.kinds.Snapshot().ResourceOf(ref.APIVersion, ref.Kind)
	namespace := ref.Namespace
	if r.Group == "" && r.Resource == "namespaces" {
		namespace = ref.Name // the request for a Namespace is in that namespace
	}
	return kind.MayResource(ctx, "get", r, namespace, ref.Name)
}

// hide removes the items of other objects that the client may not get.
func (s *Service) hide(ctx context.Context, status *v1.DeletionPreviewStatus) error {
	if err := s.mayGet(ctx, status.Object); err != nil {
		return err
	}
	hidden := func(i v1.Item) bool { return s.mayGet(ctx, i.ObjectReference) != nil }
	all := len(status.Items) + len(status.Blockers)
	status.Items, status.Blockers = slices.DeleteFunc(status.Items, hidden), slices.DeleteFunc(status.Blockers, hidden)
	status.Hidden = int64(all - len(status.Items) - len(status.Blockers))
	return nil
}

// hideReasons replaces the reasons about other objects that the client may not get.
func (s *Service) hideReasons(ctx context.Context, reasons []v1.Reason) {
	for i := range reasons {
		if o := reasons[i].Object; o != nil && s.mayGet(ctx, *o) != nil {
			reasons[i] = v1.Reason{Type: reasons[i].Type, Message: "an object that you may not get"}
			continue
		}
		s.hideReasons(ctx, reasons[i].Children)
	}
}
