package past

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// Difference is what has become, or would become, of an object.
type Difference struct {
	Object  string      `json:"object"`
	Created bool        `json:"created,omitempty"`
	Deleted bool        `json:"deleted,omitempty"`
	Changes []v1.Change `json:"changes,omitempty"`
}

// Write prints differences: what would be created, or was. none is the line if there are none.
func Write(p Printer, found []Difference, be, none string) {
	for _, d := range found {
		switch {
		case d.Created:
			p.Line("%s %s created", d.Object, be)
		case d.Deleted:
			p.Line("%s %s deleted", d.Object, be)
		}
		for _, c := range d.Changes {
			p.Line("%s: %s: %s → %s", d.Object, c.Field, unset(c.Was), unset(c.Is))
		}
	}
	if len(found) == 0 {
		p.Line("%s", none)
	}
}

// Changed compares two states of an object, without what each write changes.
func Changed(was, is *unstructured.Unstructured) ([]v1.Change, error) {
	var texts [2][]byte
	for i, o := range []*unstructured.Unstructured{was, is} {
		var err error
		if texts[i], err = o.MarshalJSON(); err != nil {
			return nil, err
		}
	}
	return v1.Differences(texts[0], texts[1])
}

// state is objects by their names, as people see them, and their groups: two groups may have kinds of one name.
type state map[string]*unstructured.Unstructured

// Compare compares an object, or the content of a namespace, at two times.
func Compare(ctx context.Context, s Session, args []string, from, to string, notes io.Writer) (found []Difference, err error) {
	path, err := s.Find(args)
	if err != nil {
		return nil, err
	}
	states, left := [2]state{}, map[schema.GroupKind]string{}
	for i, when := range []string{from, to} {
		prefix, err := at(when)
		if err == nil {
			states[i], err = objectAt(ctx, s, prefix+path)
		}
		if name, isNamespace := strings.CutPrefix(path, "/api/v1/namespaces/"); err == nil && isNamespace && !strings.Contains(name, "/") {
			err = states[i].addContent(ctx, s, name, prefix, left)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, note := range slices.Sorted(maps.Values(left)) {
		fmt.Fprintln(notes, note)
	}
	found = []Difference{}
	all := maps.Clone(states[0])
	maps.Copy(all, states[1])
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if left[all[name].GroupVersionKind().GroupKind()] != "" { // it was read at one of the times
			continue
		}
		was, is := states[0][name], states[1][name]
		shown, _, _ := strings.Cut(name, "\x00")
		d := Difference{Object: shown, Created: was == nil, Deleted: is == nil}
		if was != nil && is != nil {
			if d.Changes, err = Changed(was, is); err != nil {
				return nil, err
			}
		}
		if d.Created || d.Deleted || len(d.Changes) > 0 {
			found = append(found, d)
		}
	}
	return found, nil
}

func (all state) add(o *unstructured.Unstructured) {
	name := strings.TrimSpace(o.GetNamespace() + " " + strings.ToLower(o.GetKind()) + "/" + o.GetName())
	all[name+"\x00"+o.GroupVersionKind().Group] = o
}

// objectAt is an object at a time; none if it did not exist.
func objectAt(ctx context.Context, s Session, path string) (state, error) {
	all, o := state{}, &unstructured.Unstructured{}
	err := s.Send(ctx, http.MethodGet, path, nil, &o.Object)
	if apierrors.IsNotFound(err) {
		return all, nil
	}
	all.add(o)
	return all, err
}

// addContent adds the objects of a namespace to the Namespace, without their status. Kinds whose history is not
// kept, or not for this client, are left out, and added to left with a note.
func (all state) addContent(ctx context.Context, s Session, namespace, prefix string, left map[schema.GroupKind]string) error {
	for _, o := range all {
		delete(o.Object, "status")
	}
	kinds, err := kindsOf(ctx, s, prefix)
	if err != nil {
		return err
	}
	for gvr, gvk := range kinds {
		revision, err := all.list(ctx, s, prefix+ResourcePath(gvr, namespace), gvk)
		switch {
		case apierrors.IsForbidden(err) || apierrors.IsResourceExpired(err) && len(all) > 0:
			left[gvk.GroupKind()] = fmt.Sprintf("%s are left out: %v", gvr.Resource, err)
		case err != nil:
			return err
		case prefix != "":
			prefix = "/at/" + revision // all lists are of one version
		}
	}
	return nil
}

// kindsOf is the kinds at a time that are in namespaces and have a history.
func kindsOf(ctx context.Context, s Session, prefix string) (map[schema.GroupVersionResource]schema.GroupVersionKind, error) {
	var groups metav1.APIGroupList
	if err := s.Send(ctx, http.MethodGet, prefix+"/apis", nil, &groups); err != nil {
		return nil, err
	}
	versions := []schema.GroupVersion{{Version: "v1"}}
	for _, group := range groups.Groups {
		versions = append(versions, schema.GroupVersion{Group: group.Name, Version: group.PreferredVersion.Version})
	}
	kinds := map[schema.GroupVersionResource]schema.GroupVersionKind{}
	for _, gv := range versions {
		var list metav1.APIResourceList
		if err := s.Send(ctx, http.MethodGet, prefix+strings.TrimSuffix(ResourcePath(gv.WithResource(""), ""), "/"), nil, &list); err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if r.Namespaced && slices.Contains(r.Verbs, "history") {
				kinds[gv.WithResource(r.Name)] = gv.WithKind(r.Kind)
			}
		}
	}
	return kinds, nil
}

// list adds the objects of a path, and returns the version of the list.
func (all state) list(ctx context.Context, s Session, path string, gvk schema.GroupVersionKind) (revision string, err error) {
	for next := ""; ; {
		var page unstructured.UnstructuredList
		if err := s.Send(ctx, http.MethodGet, path, map[string]string{"limit": "500", "continue": next}, &page); err != nil {
			return "", err
		}
		for i := range page.Items {
			o := &page.Items[i]
			o.SetGroupVersionKind(gvk)
			delete(o.Object, "status")
			all.add(o)
		}
		if next = page.GetContinue(); next == "" {
			return page.GetResourceVersion(), nil
		}
	}
}
