//go:build dump

// Command dump writes the generated definitions as compressed JSON. It compiles only
// while gen runs, because the package that it reads exists only then.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"sort"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/exeunt/exeunt/openapi/gen/definitions"
)

// groups register the types that have their own kind.
var groups = runtime.NewSchemeBuilder(
	admissionregistrationv1.AddToScheme, appsv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
	autoscalingv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme,
	coordinationv1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme,
	eventsv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
	rbacv1.AddToScheme, schedulingv1.AddToScheme, storagev1.AddToScheme,
	certificatesv1.AddToScheme, flowcontrolv1.AddToScheme, nodev1.AddToScheme,
	resourcev1.AddToScheme, storagemigrationv1.AddToScheme,
	apiextensionsv1.AddToScheme,
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "dump:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	kinds, err := kindsByName()
	if err != nil {
		return err
	}
	all := map[string]spec.Schema{}
	refs := func(name string) spec.Ref {
		return spec.MustCreateRef("#/components/schemas/" + common.EscapeJsonPointer(name))
	}
	generated := definitions.GetOpenAPIDefinitions(refs)
	for name, definition := range generated {
		for _, needed := range definition.Dependencies {
			if _, ok := generated[needed]; !ok {
				return fmt.Errorf("%s refers to %s: add its package to those that are described", name, needed)
			}
		}
		s := definition.Schema
		if gvks := kinds[name]; len(gvks) > 0 {
			s.VendorExtensible.AddExtension("x-kubernetes-group-version-kind", gvks)
		}
		all[name] = s
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	packed, err := compress(text)
	if err != nil {
		return err
	}
	fmt.Printf("%d definitions, %d bytes, %d compressed\n", len(all), len(text), len(packed))
	return os.WriteFile(out, packed, 0o644)
}

// kindsByName lists the kinds of each definition. They are sorted, so that the file is
// reproducible.
func kindsByName() (map[string][]any, error) {
	scheme := runtime.NewScheme()
	if err := groups.AddToScheme(scheme); err != nil {
		return nil, err
	}
	var known []schema.GroupVersionKind
	for gvk := range scheme.AllKnownTypes() {
		known = append(known, gvk)
	}
	sort.Slice(known, func(i, j int) bool { return known[i].String() < known[j].String() })
	kinds := map[string][]any{}
	for _, gvk := range known {
		name, err := scheme.ToOpenAPIDefinitionName(gvk)
		if err != nil {
			return nil, err
		}
		kinds[name] = append(kinds[name], map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind})
	}
	return kinds, nil
}

func compress(text []byte) ([]byte, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
