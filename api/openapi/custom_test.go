package openapi

import (
	"testing"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
)

const machineDefinition = `
metadata: {name: machines.factory.exeunt.dev}
spec:
  group: factory.exeunt.dev
  scope: Namespaced
  names: {kind: Machine, listKind: MachineList, plural: machines, singular: machine}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.count, statusReplicasPath: .status.count}
    schema:
      openAPIV3Schema:
        type: object
        description: Machine makes things.
        properties:
          spec:
            type: object
            required: [count]
            properties:
              count: {type: integer, default: 1, nullable: true}
              port: {x-kubernetes-int-or-string: true}
              template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties: {count: {type: integer}}
  - name: v1alpha1
    served: true
    storage: false
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// machine is a kind as a CustomResourceDefinition makes it.
func machine(t *testing.T) *kind.Kind {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(machineDefinition), &crd); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	crd.Status.AcceptedNames = crd.Spec.Names
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{
		Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: metav1.Now(),
	}}
	k, err := custom.New(&crd, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestCustomResourceDefinition(t *testing.T) {
	t.Parallel()
	s := New(kind.NewRegistry([]*kind.Kind{custom.Definition(), machine(t)}), "v0.1.0")
	checkKinds(t, s)
	for name, url := range readIndex(t, s) {
		checkRefs(t, name, get(t, s, url).Body.Bytes())
	}
	v1 := getV3(t, s, schema.GroupVersion{Group: "factory.exeunt.dev", Version: "v1"}).Components.Schemas
	object := v1["dev.exeunt.factory.v1.Machine"]
	if object.Description != "Machine makes things." || len(object.Properties) != 5 {
		t.Errorf("Machine is %v", asJSON(t, object))
	}
	template := object.Properties["spec"].Properties["template"]
	metadata := template.Properties["metadata"]
	if len(metadata.AllOf) != 1 || refName(metadata.AllOf[0].Ref.String()) != nameObjectMeta {
		t.Errorf("metadata of the embedded object is %v", asJSON(t, metadata))
	}

	v2 := getV2(t, s).Definitions
	spec := v2["dev.exeunt.factory.v1.Machine"].Properties["spec"]
	if len(spec.Required) != 0 || len(spec.Properties["count"].Type) != 0 || len(spec.Properties["template"].Properties) != 0 {
		t.Errorf("v2 spec is %v", asJSON(t, spec))
	}
	if free := v2["dev.exeunt.factory.v1alpha1.Machine"]; len(free.Properties) != 0 || !free.Type.Contains("object") {
		t.Errorf("v2 of a kind that allows everything is %v", asJSON(t, free))
	}
	var decoded openapiv2.Document
	if err := proto.Unmarshal(get(t, s, "/openapi/v2", "Accept", protoV2Type).Body.Bytes(), &decoded); err != nil {
		t.Error(err)
	}
}
