package builtin

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
)

func TestTableOfAList(t *testing.T) {
	t.Parallel()
	left := int64(5)
	list := &corev1.PodList{
		ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "more", RemainingItemCount: &left},
		Items:    []corev1.Pod{{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, {}},
	}
	convertor := lookup(t, corev1.SchemeGroupVersion.WithKind("Pod")).Table
	made, err := convertor.ConvertToTable(background, list, &metav1.TableOptions{NoHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	if made.ResourceVersion != "9" || made.Continue != "more" || made.RemainingItemCount == nil || *made.RemainingItemCount != 5 {
		t.Errorf("list metadata became %+v", made.ListMeta)
	}
	if len(made.Rows) != 2 || made.Rows[0].Object.Object != runtime.Object(&list.Items[0]) {
		t.Fatalf("rows are %+v", made.Rows)
	}
	if len(made.Rows[0].Conditions) != 1 || len(made.Rows[1].Conditions) != 0 {
		t.Errorf("conditions are %v and %v", made.Rows[0].Conditions, made.Rows[1].Conditions)
	}
	if len(made.ColumnDefinitions) != 0 {
		t.Errorf("there are headers")
	}
}

// TestTableOfEveryKind checks that each row has a cell for each column, for an
// empty and for a full object. The review kinds have no table.
func TestTableOfEveryKind(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v *kind.Version) {
		if v.Kind.Ephemeral {
			if v.Table != nil {
				t.Error("a review kind has a table")
			}
			return
		}
		objects := []runtime.Object{v.New(), full(t, v.GVK)}
		if v.NewList != nil {
			list := v.NewList()
			if err := meta.SetList(list, objects); err != nil {
				t.Fatal(err)
			}
			objects = append(objects, list)
		}
		for _, obj := range objects {
			made, err := v.Table.ConvertToTable(background, obj, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range made.Rows {
				if len(row.Cells) < len(made.ColumnDefinitions) {
					t.Fatalf("%d cells in %d columns", len(row.Cells), len(made.ColumnDefinitions))
				}
				if _, err := json.Marshal(row.Cells); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func TestFieldLabels(t *testing.T) {
	t.Parallel()
	podKind, v1 := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion
	eventKind := schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}
	tests := []struct {
		gvk                schema.GroupVersionKind
		label, value, want string
	}{
		{podKind, "metadata.name", "a", "metadata.name"},
		{podKind, "spec.nodeName", "n", "spec.nodeName"},
		{podKind, "spec.host", "n", "spec.nodeName"},
		{podKind, "spec.hostNetwork", "false", "spec.hostNetwork"},
		{v1.WithKind("Node"), "spec.unschedulable", "false", "spec.unschedulable"},
		{v1.WithKind("Event"), "source", "kubelet", "source"},
		{v1.WithKind("ConfigMap"), "metadata.namespace", "d", "metadata.namespace"},
		{eventKind, "regarding.name", "web", "involvedObject.name"},
		{schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, "status.successful", "0", "status.successful"},
	}
	for _, tt := range tests {
		label, value, err := Scheme().ConvertFieldLabel(tt.gvk, tt.label, tt.value)
		if err != nil || label != tt.want || value != tt.value {
			t.Errorf("%s %s=%s: %s=%s, %v", tt.gvk.Kind, tt.label, tt.value, label, value, err)
		}
	}
	for _, gvk := range []schema.GroupVersionKind{podKind, eventKind, v1.WithKind("ConfigMap")} {
		if _, _, err := Scheme().ConvertFieldLabel(gvk, "spec.color", "red"); err == nil {
			t.Errorf("%s can be selected by its color", gvk.Kind)
		}
	}
}

func TestSelectableFields(t *testing.T) {
	t.Parallel()
	for gvk, want := range map[schema.GroupVersionKind]string{
		corev1.SchemeGroupVersion.WithKind("Pod"): "spec.hostNetwork spec.nodeName spec.restartPolicy spec.schedulerName " +
			"spec.serviceAccountName status.nominatedNodeName status.phase status.podIP",
		corev1.SchemeGroupVersion.WithKind("Service"):   "spec.clusterIP spec.type",
		corev1.SchemeGroupVersion.WithKind("ConfigMap"): "",
		{Group: "events.k8s.io", Version: "v1", Kind: "Event"}: "involvedObject.apiVersion involvedObject.fieldPath involvedObject.kind involvedObject.name " +
			"involvedObject.namespace involvedObject.resourceVersion involvedObject.uid reason reportingComponent type",
	} {
		if got := strings.Join(lookup(t, gvk).SelectableFields, " "); got != want {
			t.Errorf("%s: %s", gvk, got)
		}
	}
}
