package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// TestSelectDefaulted: a field selector sees the object as its client does. Stored
// bodies lack a default that the definition got later.
func TestSelectDefaulted(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.define()
	for name, spec := range map[string]string{"plain": `{}`, "red": `{"color":"red"}`, "blue": `{"color":"blue"}`} {
		w.want(http.StatusCreated, "POST", widgets, fmt.Sprintf(`{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":%q},"spec":%s}`, name, spec))
	}
	names := func(selector string) string {
		var out []string
		for _, item := range gjson.Get(w.want(http.StatusOK, "GET", widgets+"?fieldSelector="+selector, "").body, "items.#.metadata.name").Array() {
			out = append(out, item.String())
		}
		return strings.Join(out, " ")
	}
	for selector, want := range map[string]string{"spec.color=red": "red", "spec.color=": "plain", "spec.color!=red": "blue plain"} {
		if got := names(selector); got != want {
			t.Errorf("%s selects %q, want %q", selector, got, want)
		}
	}
	const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.test.dev"
	w.want(http.StatusOK, "PATCH", definition, `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color/default","value":"red"}]`,
		"Content-Type: application/json-patch+json")
	dbtest.Until(w.t, "the default applies", func() error {
		if got := names("spec.color=red"); got != "plain red" {
			return fmt.Errorf("the selector selects %q", got)
		}
		return nil
	})
	seen := w.watch(widgets + "?watch=true&fieldSelector=spec.color%3Dred")
	seen.wants("ADDED plain", "ADDED red")
	w.want(http.StatusOK, "PATCH", widgets+"/plain", `{"spec":{"color":"blue"}}`, "Content-Type: application/merge-patch+json")
	seen.wants("DELETED plain")
	w.want(http.StatusOK, "PATCH", widgets+"/plain", `{"spec":{"color":null}}`, "Content-Type: application/merge-patch+json")
	seen.wants("ADDED plain")
	w.want(http.StatusOK, "DELETE", widgets+"?fieldSelector=spec.color%3Dred", "")
	seen.wants("DELETED plain", "DELETED red")
	if got := names(""); got != "blue" {
		t.Errorf("%q are left, want blue", got)
	}
	w.want(http.StatusBadRequest, "GET", widgets+"?fieldSelector=spec.replicas%3D1", "")
}

// TestReplicaBehindStorageVersion: another replica stores an object in a version that this
// replica does not know yet. The object is served without the name of that version.
func TestReplicaBehindStorageVersion(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.define()
	w.want(http.StatusCreated, "POST", widgets, `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"color":"red"}}`)
	key := object.Key{Kind: "widgets.test.dev", Namespace: "shop", Name: "a"}
	o, err := w.api.Store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := object.ParseMeta(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	marked, err := object.WithVersion(o.Body, "v2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.api.Store.Update(t.Context(), store.UpdateRequest{Key: key, IfRevision: o.Revision, Meta: meta, Body: marked}); err != nil {
		t.Fatal(err)
	}
	get := w.want(http.StatusOK, "GET", widgets+"/a", "").body
	list := gjson.Get(w.want(http.StatusOK, "GET", widgets, "").body, "items.0").Raw
	_, watched := w.watch(widgets + "?watch=true").next()
	for _, body := range []string{get, list, watched.Raw} {
		if strings.Contains(body, `"apiVersion":"v2"`) || gjson.Get(body, "apiVersion").String() != "test.dev/v1" || gjson.Get(body, "spec.color").String() != "red" {
			t.Errorf("served as %s", body)
		}
	}
}
