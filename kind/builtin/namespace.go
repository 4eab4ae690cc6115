package builtin

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/registry/core/namespace"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// A namespace has finalizers in its spec besides those in its metadata. They name who
// must still empty it; only /finalize removes them.
func namespaceDef() def {
	return def{
		obj: &corev1.Namespace{}, plural: "namespaces", short: []string{"ns"}, strategy: namespace.Strategy, status: namespace.StatusStrategy,
		rules: lifecycle.Rules{NoGrace: true, MarkDeleting: markTerminating, MarkActive: markActive, Removable: hasNoSpecFinalizers, Refuse: keepNamespace},
	}
}

func holdContent(n *corev1.Namespace) {
	if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
		n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

// NamespaceFinalizeStrategy is the strategy of a namespace's /finalize: it can change the
// spec's finalizers, but not the status.
func NamespaceFinalizeStrategy() lifecycle.Strategy {
	return newStrategy(namespace.FinalizeStrategy, corev1.SchemeGroupVersion.WithResource("namespaces"), "finalize")
}

var namespaceGVK = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

func markTerminating(body []byte, _ time.Time) ([]byte, error) {
	return withPhase(body, corev1.NamespaceTerminating)
}

func markActive(body []byte) ([]byte, error) { return withPhase(body, corev1.NamespaceActive) }

// withPhase sets the phase when a deletion begins or is called off. It also sets the
// finalizer that stands for the content, which /finalize may have removed: a namespace
// never goes before its content.
func withPhase(body []byte, phase corev1.NamespacePhase) ([]byte, error) {
	ns := &corev1.Namespace{}
	if err := object.DecodeInto(body, "", namespaceGVK, ns); err != nil {
		return nil, err
	}
	ns.Status.Phase = phase
	holdContent(ns)
	return object.Encode(ns)
}

// keepNamespace refuses to delete the namespaces that Kubernetes refuses to delete, with
// the same message. kube-node-lease can be deleted; the server creates it again.
func keepNamespace(name string) error {
	switch name {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return object.Errorf(object.Forbidden, "this namespace may not be deleted")
	}
	return nil
}

// hasNoSpecFinalizers returns false for a body that cannot be decoded: the namespace then
// stays, which is safer than leaving its contents behind.
func hasNoSpecFinalizers(body []byte) bool {
	var ns struct {
		Spec struct {
			Finalizers []string `json:"finalizers"`
		} `json:"spec"`
	}
	return json.Unmarshal(body, &ns) == nil && len(ns.Spec.Finalizers) == 0
}
