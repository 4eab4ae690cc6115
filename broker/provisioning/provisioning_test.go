package provisioning

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/reconcile"
)

// TestKinds: both definitions can be parsed, and have the names that the triggers expect.
func TestKinds(t *testing.T) {
	kinds := New(nil, nil, nil, nil).Serve(nil)
	if len(kinds) != 2 || kinds[0].Namespaced || !kinds[1].Namespaced || kinds[1].Storage != ResourceStorage {
		t.Fatalf("the kinds are %+v", kinds)
	}
	for _, k := range kinds {
		if k.Definition != "" || len(k.Versions) != 1 || !k.Versions[0].Raw {
			t.Errorf("%s: want a built-in kind with one version that is read as stored: %+v", k.Name, k)
		}
	}
	if kinds[1].Versions[0].Status == nil || kinds[1].Admit == nil {
		t.Error("ProvisionedResource has no status or no admission")
	}
}

// TestFinalizers: the finalizers are added once.
func TestFinalizers(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetFinalizers([]string{"example.org/other"})
	addFinalizer(o, TeardownFinalizer)
	addFinalizer(o, TeardownFinalizer)
	if got := fmt.Sprint(o.GetFinalizers()); got != "[example.org/other provisioning.exeunt.dev/teardown]" {
		t.Errorf("finalizers %s", got)
	}
	dropFinalizer(TeardownFinalizer)(o)
	if got := fmt.Sprint(o.GetFinalizers()); got != "[example.org/other]" {
		t.Errorf("finalizers %s", got)
	}
}

// TestFields: every field that the domain names maps to a field of the manifest.
func TestFields(t *testing.T) {
	version := field.NewPath("spec", "versions").Index(2)
	for name, want := range map[string]string{
		"blueprint.name": "metadata.name", "blueprint.version": "spec.versions[2].name", "provider": "spec.provider",
		"xr.spec": "spec.versions[2].xr.spec", "providerConfig.kind": "spec.versions[2].providerConfig.kind",
		"schema[1].default": "spec.versions[2].parameters[1].default", "injection": "spec.versions[2].injection",
	} {
		if got := blueprintField(version, name).String(); got != want {
			t.Errorf("of a Blueprint: %s is %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"name": "metadata.name", "project": "metadata.namespace", "blueprint": "spec.blueprintRef", "blueprint.version": "spec.blueprintRef.version",
		"credential": "spec.credentialRef.name", "parameters.size": "spec.parameters.size",
	} {
		if got := resourceField(name).String(); got != want {
			t.Errorf("of a ProvisionedResource: %s is %s, want %s", name, got, want)
		}
	}
}

// TestStatus: Ready shows the progress, Synced shows whether the last round succeeded, and
// the time of a condition changes only with its status.
func TestStatus(t *testing.T) {
	first, later := time.Unix(1_800_000_000, 0), time.Unix(1_800_000_060, 0)
	show := func(s map[string]any) string {
		var b strings.Builder
		fmt.Fprint(&b, s["phase"], " | ", s["message"])
		for _, entry := range s["conditions"].([]any) {
			c := entry.(map[string]any)
			fmt.Fprint(&b, " | ", c["type"], " ", c["status"], " ", c["reason"], " ", strings.TrimPrefix(c["lastTransitionTime"].(string), "2027-01-15T08:"))
		}
		return b.String()
	}
	waiting := status(reconcile.View{Phase: broker.PhaseEnrolling, Why: "waiting"}, nil, 1, first)
	ready := status(reconcile.View{Phase: broker.PhaseReady}, waiting, 1, later)
	broken := status(reconcile.View{Phase: broker.PhaseReady, Error: "no answer"}, ready, 1, later.Add(time.Minute))
	refused := status(reconcile.View{Error: "no blueprint"}, nil, 1, first)
	for _, c := range []struct {
		got  map[string]any
		want string
	}{
		{waiting, "Enrolling | waiting | Ready False Enrolling 00:00Z | Synced True RoundCompleted 00:00Z"},
		{ready, "Ready | <nil> | Ready True Ready 01:00Z | Synced True RoundCompleted 00:00Z"},
		{broken, "Ready | no answer | Ready True Ready 01:00Z | Synced False RoundFailed 02:00Z"},
		{refused, "<nil> | no blueprint | Ready False NotAccepted 00:00Z | Synced False RoundFailed 00:00Z"},
	} {
		if got := show(c.got); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestVersionsNeverChange: versions are compared by their meaning, not by their text.
func TestVersionsNeverChange(t *testing.T) {
	v := blueprintVersion{Name: "1", XR: broker.Template{Spec: []byte(`{"a":1,"b":2}`)}, ProviderConfig: broker.Template{Spec: []byte(`{}`)}}
	was := &blueprint{}
	was.Spec.Versions = []blueprintVersion{v}
	same, other, withdrawn := v, v, v
	same.XR.Spec, other.XR.Spec, withdrawn.Withdrawn = []byte(`{ "b":2, "a":1 }`), []byte(`{"a":1}`), true
	for name, c := range map[string]struct {
		versions []blueprintVersion
		errors   int
	}{
		"in another order": {[]blueprintVersion{same}, 0},
		"withdrawn":        {[]blueprintVersion{withdrawn}, 0},
		"one added":        {[]blueprintVersion{{Name: "0"}, v}, 0},
		"changed":          {[]blueprintVersion{other}, 1},
		"taken back":       {[]blueprintVersion{{Name: "2"}}, 1},
	} {
		next := &blueprint{}
		next.Spec.Versions = c.versions
		if errs := next.checkKept(was); len(errs) != c.errors {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// TestExplain: the report explains a held teardown from the stored status, and names its
// node and composite resource.
func TestExplain(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	resource := broker.State{
		ID: "id", Project: "shop", Name: "web", XR: broker.ObjectType{APIVersion: "infra.example.org/v1", Kind: "XNode"},
		Phase: broker.PhaseDeregistering, DeletionRequestedAt: at, CreatedAt: at, ConvergeStartedAt: at, Deadline: time.Hour,
	}
	for _, c := range []struct {
		name                    string
		view                    reconcile.View
		message, resolve, first string
	}{
		{"not begun", reconcile.View{Phase: broker.PhaseReady}, "the teardown has yet to begin", "", ""},
		{"held by its peer", reconcile.View{Phase: broker.PhaseDeregistering, Resource: resource, Since: at, Why: "waiting for the node to leave the mesh (peer web-1)",
			Observed: broker.ObservedXR{Reasons: []broker.Reason{{Holder: broker.HolderPeer, Name: "web-1", Object: "MeshNode/web-1"}}}},
			"Deregistering: waiting for the node to leave the mesh (peer web-1)", "wait for the listed holders", "MeshNode web-1 shop"},
		{"failing", reconcile.View{Phase: broker.PhaseDeprovisioning, Resource: resource, Since: at, Error: "delete XR: no"},
			"Deprovisioning: delete XR: no", "mend what the error names", "XNode web-"},
	} {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"namespace": "shop"}, "status": status(c.view, nil, 1, at)})
		if err != nil {
			t.Fatal(err)
		}
		reason, others := Explain(body)
		if reason.Message != c.message || !strings.HasPrefix(reason.Resolve, c.resolve) || (c.resolve == "") != (reason.Resolve == "") {
			t.Errorf("%s: %q, to resolve: %q", c.name, reason.Message, reason.Resolve)
		}
		if c.first == "" {
			continue
		}
		if reason.Since == nil || !reason.Since.Time.Equal(at) {
			t.Errorf("%s: since %v", c.name, reason.Since)
		}
		if got := others[0].Kind + " " + others[0].Name + " " + others[0].Namespace; !strings.HasPrefix(got, c.first) {
			t.Errorf("%s: waits for %+v", c.name, others)
		}
	}
	if reason, _ := Explain([]byte("{")); !strings.HasPrefix(reason.Message, "its status cannot be read") {
		t.Errorf("for a broken object: %q", reason.Message)
	}
}
