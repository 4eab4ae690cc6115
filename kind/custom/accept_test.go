package custom

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// holding returns another definition that holds these names.
func holding(group string, names apiextensionsv1.CustomResourceDefinitionNames) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = "other." + group
	crd.Spec.Group = group
	crd.Status.AcceptedNames = names
	return crd
}

// summary returns conditions in short form: "Established=True InitialNamesAccepted".
func summary(s apiextensionsv1.CustomResourceDefinitionStatus) []string {
	var out []string
	for _, c := range s.Conditions {
		out = append(out, string(c.Type)+"="+string(c.Status)+" "+c.Reason)
	}
	return out
}

func TestAcceptNames(t *testing.T) {
	t.Parallel()
	type names = apiextensionsv1.CustomResourceDefinitionNames
	refused := func(reason string) []string {
		return []string{"NamesAccepted=False " + reason, "Established=False NotAccepted"}
	}
	good := []string{"NamesAccepted=True NoConflicts", "Established=True InitialNamesAccepted"}
	all := names{Plural: "widgets", Singular: "widget", ShortNames: []string{"wd"}, Kind: "Widget", ListKind: "WidgetList", Categories: []string{"all"}}
	without := func(change func(*names)) names {
		n := all
		change(&n)
		return n
	}
	tests := []struct {
		name     string
		other    *apiextensionsv1.CustomResourceDefinition
		want     []string
		message  string
		accepted names
	}{
		{"alone", nil, good, "no conflicts found", all},
		{"plural", holding("example.com", names{Plural: "widgets"}), refused("PluralConflict"),
			`"widgets" is already in use`, without(func(n *names) { n.Plural = "" })},
		{"plural is another's short name", holding("example.com", names{ShortNames: []string{"widgets"}}), refused("PluralConflict"),
			`"widgets" is already in use`, without(func(n *names) { n.Plural = "" })},
		{"singular", holding("example.com", names{Singular: "widget"}), refused("SingularConflict"),
			`"widget" is already in use`, without(func(n *names) { n.Singular = "" })},
		{"short name", holding("example.com", names{ShortNames: []string{"x", "wd"}}), refused("ShortNamesConflict"),
			`"wd" is already in use`, without(func(n *names) { n.ShortNames = nil })},
		{"kind", holding("example.com", names{Kind: "Widget"}), refused("KindConflict"),
			`"Widget" is already in use`, without(func(n *names) { n.Kind = "" })},
		{"list kind", holding("example.com", names{Kind: "WidgetList"}), refused("ListKindConflict"),
			`"WidgetList" is already in use`, without(func(n *names) { n.ListKind = "" })},
		{"another group", holding("example.org", all), good, "no conflicts found", all},
		{"another one that holds nothing", holding("example.com", names{}), good, "no conflicts found", all},
		{"built-in kind", Reserve(&kind.Kind{Group: "example.com", Plural: "widgets", Singular: "w", Name: "W", ListName: "WL", Storage: "widgets.example.com"}),
			refused("PluralConflict"), `"widgets" is already in use`, without(func(n *names) { n.Plural = "" })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			crd := parse(t, widgets)
			others := []*apiextensionsv1.CustomResourceDefinition{crd}
			if tt.other != nil {
				others = append(others, tt.other)
			}
			before := crd.DeepCopy()
			status, changed := Accept(crd, others, now)
			if !changed {
				t.Error("nothing changed")
			}
			if diff := cmp.Diff(before, crd); diff != "" {
				t.Errorf("the definition was changed:\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, summary(status)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if got := status.Conditions[0].Message; got != tt.message {
				t.Errorf("message = %q, want %q", got, tt.message)
			}
			if diff := cmp.Diff(tt.accepted, status.AcceptedNames); diff != "" {
				t.Errorf("accepted names (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"v1"}, status.StoredVersions); diff != "" {
				t.Errorf("stored versions (-want +got):\n%s", diff)
			}
			crd.Status = status
			if again, changed := Accept(crd, others, now.Add(time.Hour)); changed {
				t.Errorf("asked again, the answer differs: %s", cmp.Diff(status, again))
			}
		})
	}
}

func TestAcceptLater(t *testing.T) {
	t.Parallel()
	taken := holding("example.com", apiextensionsv1.CustomResourceDefinitionNames{Singular: "sprocket", ShortNames: []string{"sp"}})
	others := []*apiextensionsv1.CustomResourceDefinition{taken}

	t.Run("an established one stays so and keeps its name", func(t *testing.T) {
		crd := create(t, widgets)
		crd.Spec.Names.ShortNames = []string{"wd", "sp"}
		status, changed := Accept(crd, others, now.Add(time.Hour))
		want := []string{"NamesAccepted=False ShortNamesConflict", "Established=True InitialNamesAccepted"}
		if diff := cmp.Diff(want, summary(status)); diff != "" || !changed {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"wd"}, status.AcceptedNames.ShortNames); diff != "" {
			t.Errorf("short names (-want +got):\n%s", diff)
		}
		if a, e := status.Conditions[0].LastTransitionTime, status.Conditions[1].LastTransitionTime; !a.Time.Equal(now.Add(time.Hour)) || !e.Time.Equal(now) {
			t.Errorf("transition times %v and %v, want only the first to move", a, e)
		}
	})
	t.Run("a freed name is taken and establishes", func(t *testing.T) {
		crd := parse(t, edit(t, widgets, "kind: Widget,", "kind: Widget, singular: sprocket,"))
		crd.Status, _ = Accept(crd, others, now)
		if Established(crd) {
			t.Fatal("established without its singular")
		}
		status, changed := Accept(crd, nil, now.Add(time.Hour))
		want := []string{"NamesAccepted=True NoConflicts", "Established=True InitialNamesAccepted"}
		if diff := cmp.Diff(want, summary(status)); diff != "" || !changed || status.AcceptedNames.Singular != "sprocket" {
			t.Errorf("names %+v, conditions (-want +got):\n%s", status.AcceptedNames, diff)
		}
	})
	t.Run("its own names are no conflict", func(t *testing.T) {
		crd := create(t, widgets)
		crd.Spec.Names.ShortNames = []string{"widget"}
		status, _ := Accept(crd, []*apiextensionsv1.CustomResourceDefinition{crd.DeepCopy()}, now)
		if diff := cmp.Diff([]string{"widget"}, status.AcceptedNames.ShortNames); diff != "" {
			t.Errorf("short names (-want +got):\n%s", diff)
		}
	})
	t.Run("a new storage version is noted", func(t *testing.T) {
		crd := create(t, widgets)
		crd.Spec.Versions[0].Storage, crd.Spec.Versions[1].Storage = true, false
		status, changed := Accept(crd, nil, now)
		if diff := cmp.Diff([]string{"v1", "v1beta1"}, status.StoredVersions); diff != "" || !changed {
			t.Errorf("stored versions (-want +got):\n%s", diff)
		}
	})
}

func TestAcceptDeletion(t *testing.T) {
	t.Parallel()
	deleted := at(0)
	crd := create(t, widgets)
	crd.DeletionTimestamp = &deleted
	status, changed := Accept(crd, nil, now)
	want := []string{"NamesAccepted=True NoConflicts", "Established=True InitialNamesAccepted", "Terminating=True InstanceDeletionInProgress"}
	if diff := cmp.Diff(want, summary(status)); diff != "" || !changed {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	crd.Status = status
	crd.Status.Conditions[2].Reason = "InstanceDeletionCheck"
	if status, changed := Accept(crd, nil, now); changed {
		t.Errorf("a more exact reason was overwritten: %v", summary(status))
	}

	fresh := parse(t, plain)
	fresh.DeletionTimestamp = &deleted
	status, _ = Accept(fresh, nil, now)
	if diff := cmp.Diff([]string{"Terminating=True InstanceDeletionInProgress"}, summary(status)); diff != "" || status.AcceptedNames.Plural != "" {
		t.Errorf("never established, conditions (-want +got):\n%s", diff)
	}
}

// TestMarkTerminating: the DELETE of a definition sets the condition; the controller sets a
// new reason when no guard holds the deletion; a deletion that is called off removes it.
func TestMarkTerminating(t *testing.T) {
	t.Parallel()
	crd := create(t, widgets)
	before := summary(crd.Status)
	body, err := object.Encode(crd)
	if err != nil {
		t.Fatal(err)
	}
	rules := Definition().Rules
	marked, err := rules.MarkDeleting(body, now)
	if err != nil {
		t.Fatal(err)
	}
	decode := func(body []byte) *apiextensionsv1.CustomResourceDefinition {
		decoded, err := Definition().Versions[0].Decode(body, "1")
		if err != nil {
			t.Fatal(err)
		}
		return decoded.(*apiextensionsv1.CustomResourceDefinition)
	}
	got := decode(marked)
	if diff := cmp.Diff(append(before, "Terminating=True InstanceDeletionPending"), summary(got.Status)); diff != "" {
		t.Errorf("marked (-want +got):\n%s", diff)
	}
	deleted := at(0)
	got.DeletionTimestamp, got.Finalizers = &deleted, []string{lifecycle.ConfirmCascade}
	if status, changed := Accept(got, nil, now); changed {
		t.Errorf("while the guard holds it: %v", summary(status))
	}
	got.Finalizers = nil
	if status, _ := Accept(got, nil, now); status.Conditions[2].Reason != "InstanceDeletionInProgress" {
		t.Errorf("without the guard: %v", summary(status))
	}
	active, err := rules.MarkActive(marked)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, summary(decode(active).Status)); diff != "" {
		t.Errorf("called off (-want +got):\n%s", diff)
	}
	if _, err := rules.MarkDeleting([]byte("{"), now); err == nil {
		t.Error("an unreadable definition was marked")
	}
}

func TestAcceptApproval(t *testing.T) {
	t.Parallel()
	tests := []struct{ annotation, want string }{
		{"https://github.com/kubernetes/kubernetes/pull/1", "True ApprovedAnnotation"},
		{"unapproved, an experiment", "False UnapprovedAnnotation"},
		{"whatever", "False InvalidAnnotation"},
		{"", "False MissingAnnotation"},
	}
	for _, tt := range tests {
		crd := parse(t, strings.ReplaceAll(plain, "example.com", "gears.k8s.io"))
		crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: tt.annotation}
		status, _ := Accept(crd, nil, now)
		if got := summary(status)[2]; got != "KubernetesAPIApprovalPolicyConformant="+tt.want {
			t.Errorf("%q: %s", tt.annotation, got)
		}
	}
}
