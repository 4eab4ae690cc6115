package preview

import (
	"slices"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
)

// hide removes the items of other objects that the client may not get.
func (s *Service) hide(client kind.Client, status *v1.DeletionPreviewStatus) {
	kinds := s.kinds.Snapshot()
	hidden := func(i v1.Item) bool { return deletion.MayGet(client, kinds, i.ObjectReference) != nil }
	all := len(status.Items)
	status.Items, status.Blockers = slices.DeleteFunc(status.Items, hidden), slices.DeleteFunc(status.Blockers, hidden)
	status.Hidden = int64(all - len(status.Items))
}
