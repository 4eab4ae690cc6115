// Package builtin declares the kinds that exist without any
// CustomResourceDefinition: the Kubernetes kinds that clients and controllers
// expect of every server. Begin with [Kinds].
//
// Each kind is one declaration ([def]) in the file of its API group: its names, its rules of
// deletion, and the strategy of Kubernetes 1.37 that has its rules. Defaults, validation,
// conversions and the columns of `kubectl get` are Kubernetes' own code ([strategy], [tables]).
//
// Objects have the version that is served and stored, so the stored JSON is the JSON of the
// response. The exceptions are events.k8s.io, a second view of the stored core Events, and
// autoscaling/v1, a second view of autoscaling/v2. Internal types exist only inside of a strategy.
//
// The package uses no store and no request.
package builtin

import (
	"sync"

	"github.com/exeunt/exeunt/kind"
)

// Kinds returns the built-in kinds. They are built once. The slice belongs to the caller;
// the kinds are shared and must not be changed.
func Kinds() []*kind.Kind {
	return append([]*kind.Kind(nil), kinds()...)
}

var kinds = sync.OnceValue(func() []*kind.Kind {
	all := []*kind.Kind{autoscalers()}
	for _, group := range [][]def{
		coreDefs(), workloadDefs(), networkDefs(), rbacDefs(), admissionDefs(), storageDefs(),
		flowDefs(), deviceDefs(), certificateDefs(), reviewDefs(),
	} {
		for _, d := range group {
			all = append(all, d.kind())
		}
	}
	return all
})
