package report

import (
	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
)

// hideReasons replaces the reasons about other objects that the client may not get.
func hideReasons(client kind.Client, kinds *kind.Snapshot, reasons []v1.Reason) {
	for i := range reasons {
		if o := reasons[i].Object; o != nil && deletion.MayGet(client, kinds, *o) != nil {
			reasons[i] = v1.Reason{Type: reasons[i].Type, Message: "an object that you may not get"}
			continue
		}
		hideReasons(client, kinds, reasons[i].Children)
	}
}
