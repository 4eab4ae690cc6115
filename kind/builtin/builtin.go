// Package builtin declares the kinds that exist without any
// CustomResourceDefinition: the Kubernetes kinds that clients and controllers
// expect of every server. Begin with [Kinds].
//
// Each kind is one declaration ([def]) in the file of its API group. It names what differs
// from the common case: defaults, rules, columns. Names, defaults, mutable fields and the
// columns of `kubectl get` are those of Kubernetes 1.37.
//
// There are no internal types. Every object has the one version that is served and
// stored, so the stored JSON is the JSON of the response. The exceptions are events.k8s.io,
// a second view of the stored core Events, and autoscaling/v1, a second view of autoscaling/v2.
//
// The package is pure: it uses no store and no request. It uses the clock for the ages in
// tables and for the times of a device's taint and of a certificate request's conditions.
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
	var all []*kind.Kind
	for _, group := range [][]*kind.Kind{
		coreKinds(), coreStorageKinds(), eventKinds(), appsKinds(), batchKinds(),
		coordinationKinds(), discoveryKinds(), policyKinds(), networkingKinds(),
		rbacKinds(), admissionKinds(), schedulingKinds(), storageKinds(), autoscalingKinds(),
		nodeKinds(), flowControlKinds(), migrationKinds(), deviceKinds(), podCertificateKinds(),
		certificateKinds(),
		reviewKinds(),
	} {
		all = append(all, group...)
	}
	return all
})
