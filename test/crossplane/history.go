package crossplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// detail is how much of an object is recorded: what does not depend on timing.
type detail int

const (
	ends    detail = iota // created and gone
	deletes               // also when its deletion begins
	facts                 // also owner, finalizers, and the conditions that the broker reads
)

var recorded = []struct {
	resource schema.GroupVersionResource
	detail   detail
}{
	{XNodes, facts},
	{Machines, facts},
	{ProviderConfigs, ends},
	{schema.GroupVersionResource{Group: "mesh.exeunt.dev", Version: "v1alpha1", Resource: "meshnodes"}, deletes},
	{schema.GroupVersionResource{Group: "provisioning.exeunt.dev", Version: "v1alpha1", Resource: "provisionedresources"}, deletes},
}

// conditionTypes are the conditions that the broker reads.
var conditionTypes = []string{"Failed", "Ready", "Synced"}

// milestones are the lines whose order across objects is fixed: the node leaves before its
// substrate is deleted. Every other order across objects depends on timing.
var milestones = []string{
	"ProvisionedResource created", "XNode created", "Machine created", "MeshNode created",
	"ProvisionedResource deleting", "MeshNode gone", "XNode deleting", "Machine gone", "XNode gone", "ProviderConfig gone", "ProvisionedResource gone",
}

// History reads what happened in a namespace after a revision to the objects of one resource of the
// broker, by revision: a line for each object that was created, is being deleted or is gone, and
// for each change of owner, finalizers and conditions. Names, uids, times and messages are left out.
func History(ctx context.Context, config *rest.Config, namespace, since string) ([]string, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	parts := make([]map[int][]string, len(recorded)) // lines by revision
	var reads errgroup.Group
	for i, kind := range recorded {
		reads.Go(func() (err error) {
			parts[i], err = readLog(ctx, client.Resource(kind.resource).Namespace(namespace), since, kind.detail)
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	lines := map[int][]string{} // an object has a revision of its own
	for _, part := range parts {
		maps.Copy(lines, part)
	}
	var history []string
	for _, revision := range slices.Sorted(maps.Keys(lines)) {
		history = append(history, lines[revision]...)
	}
	return history, nil
}

// readLog reads the lines of one kind, by revision, with a watch that ends after a second: what happened
// before is sent at once.
func readLog(ctx context.Context, client dynamic.ResourceInterface, since string, d detail) (map[int][]string, error) {
	seconds := int64(1)
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: since, TimeoutSeconds: &seconds})
	if err != nil {
		return nil, err
	}
	lines := map[int][]string{}
	last := map[string]string{} // the last facts; a life has one object of each kind
	for e := range w.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error {
			return nil, fmt.Errorf("watch: %v", e.Object)
		}
		revision, err := strconv.Atoi(o.GetResourceVersion())
		if err != nil {
			return nil, err
		}
		lines[revision] = changes(e.Type, o, last, d)
	}
	return lines, nil
}

// changes returns a line for each fact of an object that an event changes.
func changes(event watch.EventType, o *unstructured.Unstructured, last map[string]string, d detail) (lines []string) {
	line := func(fact, value string) {
		if last[fact] != value {
			last[fact] = value
			lines = append(lines, strings.TrimSpace(o.GetKind()+" "+fact+" "+value))
		}
	}
	switch {
	case event == watch.Deleted:
		clear(last)
		return []string{o.GetKind() + " gone"}
	case event == watch.Added:
		lines = append(lines, o.GetKind()+" created")
	}
	if d >= deletes && o.GetDeletionTimestamp() != nil && last["deleting"] == "" {
		last["deleting"] = "yes"
		lines = append(lines, o.GetKind()+" deleting")
	}
	if d < facts {
		return lines
	}
	for _, owner := range o.GetOwnerReferences() {
		line("owner", fmt.Sprintf("%s controller=%t blockOwnerDeletion=%t", owner.Kind, is(owner.Controller), is(owner.BlockOwnerDeletion)))
	}
	if finalizers := o.GetFinalizers(); len(finalizers) > 0 || last["finalizers"] != "" {
		slices.Sort(finalizers)
		line("finalizers", fmt.Sprint(finalizers))
	}
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, kind := range conditionTypes {
		for _, c := range list {
			if text(c, "type") == kind {
				line(kind, text(c, "status")+" "+text(c, "reason"))
			}
		}
	}
	return lines
}

func is(flag *bool) bool { return flag != nil && *flag }

func text(condition any, field string) string {
	fields, _ := condition.(map[string]any)
	value, _ := fields[field].(string)
	return value
}

// Compare says where a history differs from a recorded one: each kind must have the same lines in
// the same order, and the milestones must be in the same order.
func Compare(got, want []string) (differences []string) {
	parts := map[string]func(line string) bool{"the milestones": func(line string) bool { return slices.Contains(milestones, line) }}
	for _, line := range slices.Concat(got, want) {
		kind, _, _ := strings.Cut(line, " ")
		parts[kind] = func(line string) bool { return strings.HasPrefix(line, kind+" ") }
	}
	for part, in := range parts {
		g, w := only(got, in), only(want, in)
		if !slices.Equal(g, w) {
			differences = append(differences, fmt.Sprintf("%s:\n  %s\nrecorded with the real Crossplane:\n  %s", part, strings.Join(g, "\n  "), strings.Join(w, "\n  ")))
		}
	}
	slices.Sort(differences)
	return differences
}

func only(lines []string, in func(string) bool) (kept []string) {
	for _, line := range lines {
		if in(line) {
			kept = append(kept, line)
		}
	}
	return kept
}
