package custom

import (
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// statusManager is the field manager of the status that this server writes.
const statusManager = "exeunt"

// OwnStatus records in changed that this server owns the fields of the status in which it
// differs from live. Like the library, it records no owner if the fields cannot be determined.
func OwnStatus(live, changed *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	manager, err := statusOwners()
	if err != nil {
		return changed
	}
	if owned, ok := manager.UpdateNoErrors(live, changed, statusManager).(*apiextensionsv1.CustomResourceDefinition); ok {
		return owned
	}
	return changed
}

var statusOwners = sync.OnceValues(func() (*managedfields.FieldManager, error) {
	gvk := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	wire := definitionWire()
	return managedfields.NewDefaultFieldManager(wire.TypeConverter, wire.Convertor, wire.Defaulter, wire.Creater,
		gvk, gvk.GroupVersion(), "status", fieldpath.NewExcludeFilterSetMap(resetFields(gvk, "spec")))
})
