// Package builtin declares the kinds that exist without any
// CustomResourceDefinition: the Kubernetes kinds that clients and controllers
// expect of every server. Begin with [Kinds].
//
// Each kind is one declaration ([def]) in the file of its API group, naming
// what differs: defaults, rules, columns. Facts (names, defaults, which fields
// may change, what `kubectl get` shows) are those of Kubernetes 1.37.
//
// There are no internal types here. Every object is of the one version that is
// served and stored, so the stored JSON is the JSON on the wire. The exception
// is events.k8s.io, a second view of the stored core Events.
//
// The package is pure: it knows no store, no request and, but for the ages in
// tables, no clock.
package builtin

import (
	"sync"

	"github.com/exeunt/exeunt/kind"
)

// Kinds returns the built-in kinds. They are made once; the slice is the
// caller's, the kinds are shared and must not be changed.
func Kinds() []*kind.Kind {
	return append([]*kind.Kind(nil), kinds()...)
}

var kinds = sync.OnceValue(func() []*kind.Kind {
	var all []*kind.Kind
	for _, group := range [][]*kind.Kind{
		coreKinds(), coreStorageKinds(), eventKinds(), appsKinds(), batchKinds(),
		coordinationKinds(), discoveryKinds(), policyKinds(), networkingKinds(),
		rbacKinds(), schedulingKinds(), storageKinds(), autoscalingKinds(),
		reviewKinds(),
	} {
		all = append(all, group...)
	}
	return all
})
