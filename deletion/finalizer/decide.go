package finalizer

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var finalizerPath = field.NewPath("spec", "finalizer")

// decision is the new state of the object.
type decision struct {
	remove bool // nothing holds it: remove it
	meta   metav1.ObjectMeta
	body   []byte
	left   []string // finalizers, including those of a Namespace's spec
}

// decide decides about the removal of a finalizer.
//
// It refuses for an ACTIVE object: the finalizer holds nothing yet, its controller
// would set it again, and the removal would silently disable a protection.
func decide(o *store.Stored, finalizer string, rules lifecycle.Rules, ref v1.ObjectReference) (decision, error) {
	m, err := metaOf(o)
	if err != nil {
		return decision{}, err
	}
	in := inSpec(o)
	if !slices.Contains(m.Finalizers, finalizer) && !slices.Contains(in, finalizer) {
		return decision{}, refuse(field.Invalid(finalizerPath, finalizer, "not on "+describe(ref)+", "+has(append(slices.Clone(m.Finalizers), in...))))
	}
	if instead := alternative(finalizer, ref); instead != "" {
		return decision{}, refuse(field.Forbidden(finalizerPath, instead))
	}
	if m.DeletionTimestamp == nil {
		return decision{}, object.Errorf(object.Conflict,
			"%s is not being deleted, so the finalizer holds nothing yet: delete the object first", describe(ref))
	}
	d := decision{meta: m, body: o.Body}
	d.meta.Finalizers = slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool { return f == finalizer })
	if slices.Contains(in, finalizer) {
		in = slices.DeleteFunc(slices.Clone(in), func(f string) bool { return f == finalizer })
		if d.body, err = withSpec(o, in); err != nil {
			return decision{}, err
		}
	}
	d.left = append(slices.Clone(d.meta.Finalizers), in...)
	if d.remove = lifecycle.RemoveNow(d.body, d.meta, rules); d.remove {
		return d, nil
	}
	d.body, err = object.WithMeta(d.body, d.meta)
	return d, err
}

// has lists finalizers in words.
func has(finalizers []string) string {
	if len(finalizers) == 0 {
		return "which has no finalizers"
	}
	return "which has: " + strings.Join(finalizers, ", ")
}

func refuse(err *field.Error) error { return object.InvalidFields(field.ErrorList{err}) }

// alternative says what to do instead of removing a finalizer of this server.
// Removing it would leave the server's work half done; each one has a command that
// ends it properly. Empty: the finalizer belongs to another controller.
func alternative(finalizer string, ref v1.ObjectReference) string {
	target := strings.ToLower(ref.Kind) + " " + ref.Name
	if ref.Namespace != "" {
		target += " -n " + ref.Namespace
	}
	switch finalizer {
	case metav1.FinalizerDeleteDependents:
		return "it is the collector's, which deletes the dependents first; to stop waiting for them: kubectl delete " + target + " --cascade=background"
	case metav1.FinalizerOrphanDependents:
		return "it is the collector's, which orphans the dependents first; to have them deleted instead: kubectl delete " + target + " --cascade=background"
	case lifecycle.ConfirmCascade:
		return "it is the guard's, which holds a cascade above the limit until it is confirmed; to confirm or to call it off, see: exeunt why " + strings.Replace(target, " ", "/", 1)
	case lifecycle.PropagateGrace:
		return "it is the collector's, which passes the grace period on to the dependents first; see: exeunt gc status"
	case apiextensionsv1.CustomResourceCleanupFinalizer:
		return "without it the definition would leave objects behind that no client can reach; see what keeps them: exeunt why " + strings.Replace(target, " ", "/", 1)
	case string(corev1.FinalizerKubernetes):
		if ref.Kind == "Namespace" {
			return "it stands for the namespace's content, which would be left behind; see what keeps it: exeunt why namespace/" + ref.Name
		}
	}
	return ""
}

// describe names an object for people: "Deployment web in namespace shop".
func describe(ref v1.ObjectReference) string {
	text := ref.Kind + " " + ref.Name
	if ref.Namespace != "" {
		text += " in namespace " + ref.Namespace
	}
	return text
}

var namespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

// inSpec returns the finalizers in a Namespace's spec.
func inSpec(o *store.Stored) []string {
	if o.Kind != object.Namespaces {
		return nil
	}
	var ns corev1.Namespace
	if object.DecodeInto(o.Body, "", namespaceKind, &ns) != nil {
		return nil // unreadable: no finalizer can be named
	}
	var out []string
	for _, f := range ns.Spec.Finalizers {
		out = append(out, string(f))
	}
	return out
}

// withSpec returns a Namespace's body with these finalizers in its spec.
func withSpec(o *store.Stored, finalizers []string) ([]byte, error) {
	var ns corev1.Namespace
	if err := object.DecodeInto(o.Body, "", namespaceKind, &ns); err != nil {
		return nil, fmt.Errorf("read %s: %w", o.Key, err)
	}
	ns.Spec.Finalizers = nil
	for _, f := range finalizers {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerName(f))
	}
	return object.Encode(&ns)
}
