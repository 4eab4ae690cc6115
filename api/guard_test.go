package api

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

const shop = "/api/v1/namespaces/shop"

// guarded is a world with a user, writer, who may do everything but confirm a cascade, and
// with a limit of one object in each namespace.
func guarded(t *testing.T, db *sqldb.DB) *world {
	w := newWorld(t, store.Options{DB: db})
	o := accesstest.Objects()
	o.ClusterRoles["writer"] = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "writer"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"*"}, Resources: []string{"*"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "force-finalize"},
	}}}
	o.ClusterRoleBindings["writer"] = &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "writer"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "writer"}},
	}
	w.api.Access = access.NewControl(directory.Of(o), access.Config{})
	w.patch(shop, `{"metadata":{"annotations":{"`+lifecycle.MaxCascade+`":"1"}}}`)
	w.want(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"full","annotations":{"`+lifecycle.MaxCascade+`":"1"}}}`)
	w.want(http.StatusCreated, "POST", "/api/v1/namespaces/full/configmaps", `{"metadata":{"name":"content"}}`)
	w.define()
	return w
}

const deploymentSpec = `"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`

// hold creates an owner with a finalizer of another controller and a dependent, and deletes the owner.
func (w *world) hold(path, kind, name, rest string) {
	w.t.Helper()
	if !strings.HasSuffix(path, "/namespaces") {
		apiVersion := strings.TrimPrefix(strings.TrimPrefix(path[:strings.Index(path, "/namespaces")], "/apis/"), "/api/")
		uid := w.want(http.StatusCreated, "POST", path, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"finalizers":["example.com/x"],"annotations":{"a":"b"}}%s}`, apiVersion, kind, name, rest)).get("metadata.uid")
		w.configMap(strings.ToLower(kind)+"-of-"+name, fmt.Sprintf(`,"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q}]`, apiVersion, kind, name, uid))
	}
	w.want(http.StatusOK, "DELETE", path+"/"+name, `{"propagationPolicy":"Foreground"}`)
	if g, _ := w.guardOf(path + "/" + name); !g.Held || g.Limit != 1 {
		w.t.Fatalf("%s is not held: %+v", name, g)
	}
}

// guardOf returns the guard's state of an object, and the object.
func (w *world) guardOf(path string) (lifecycle.Guard, map[string]any) {
	w.t.Helper()
	body := w.want(http.StatusOK, "GET", path, "").body
	var o struct{ Metadata metav1.ObjectMeta }
	all := map[string]any{}
	if err := json.Unmarshal([]byte(body), &o); err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		w.t.Fatal(err)
	}
	return lifecycle.GuardOf(&o.Metadata), all
}

// TestHeldStaysHeld: whatever a client without the right confirm-cascade writes, on any path
// and of any form, the guard holds the deletion as before.
func TestHeldStaysHeld(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := guarded(t, db)
		w.hold(configMaps, "ConfigMap", "held", "")
		w.hold(deployments, "Deployment", "held", ","+deploymentSpec)
		w.hold(widgets, "Widget", "held", `,"spec":{"replicas":1}`)
		w.hold("/api/v1/namespaces", "Namespace", "full", "")
		for _, target := range []struct {
			path  string
			parts []string
		}{
			{configMaps + "/held", []string{""}},
			{deployments + "/held", []string{"", "/status", "/scale"}},
			{widgets + "/held", []string{"", "/status", "/scale"}},
			{"/api/v1/namespaces/full", []string{"", "/status", "/finalize"}},
		} {
			before, _ := w.guardOf(target.path)
			served, refused := 0, 0
			for seed := range uint64(150) {
				random := rand.New(rand.NewPCG(seed, 1))
				method, kind, body := w.randomWrite(random, target.path)
				path := target.path + target.parts[random.IntN(len(target.parts))]
				if method != "DELETE" {
					path += "?force=true&fieldManager=m" + fmt.Sprint(random.IntN(2)) + "&fieldValidation=" + []string{"Ignore", "Warn", "Strict"}[random.IntN(3)]
					if kind != "apply-patch+yaml" {
						path = strings.Replace(path, "force=true&", "", 1)
					}
				}
				r := w.as("writer", nil, method, path, body, "Content-Type: application/"+kind)
				if r.code >= 500 {
					t.Fatalf("seed %d: %s %s %s %s: %d %s", seed, method, kind, path, body, r.code, r.body)
				}
				if r.code < 300 {
					served++
				} else {
					refused++
				}
				if after, o := w.guardOf(target.path); !reflect.DeepEqual(after, before) {
					t.Fatalf("seed %d: %s %s %s\n%s\nanswered %d, and the guard is %+v, was %+v: %v", seed, method, kind, path, body, r.code, after, before, o["metadata"])
				}
			}
			if served < 10 || refused < 10 {
				t.Errorf("%s: %d writes were served and %d refused: the test tries too little", target.path, served, refused)
			}
		}
	})
}

// randomWrite changes the metadata of an object at random: mostly the marks of its deletion.
func (w *world) randomWrite(random *rand.Rand, path string) (method, kind, body string) {
	_, o := w.guardOf(path)
	old, _ := json.Marshal(o)
	m := o["metadata"].(map[string]any)
	annotations, _ := m["annotations"].(map[string]any)
	finalizers := slices.Clone(m["finalizers"].([]any))
	for range 1 + random.IntN(3) {
		switch random.IntN(12) {
		case 0:
			delete(annotations, lifecycle.HeldAbove)
		case 1:
			annotations[lifecycle.HeldAbove] = []string{"1000000", "0", "", "x", "-1"}[random.IntN(5)]
		case 2:
			annotations[lifecycle.ConfirmCascade] = []string{"1000000", "2"}[random.IntN(2)]
		case 3:
			delete(m, "annotations")
			annotations = map[string]any{}
		case 4:
			finalizers = nil
		case 5:
			finalizers = slices.DeleteFunc(finalizers, func(f any) bool { return f == lifecycle.ConfirmCascade })
		case 6:
			finalizers = slices.DeleteFunc(finalizers, func(any) bool { return random.IntN(2) == 0 })
		case 7:
			delete(m, "deletionTimestamp")
			delete(m, "deletionGracePeriodSeconds")
		case 8:
			delete(m, "ownerReferences")
			delete(m, "managedFields")
		case 9:
			if spec, _ := o["spec"].(map[string]any); spec["finalizers"] != nil {
				spec["finalizers"] = []any{}
			}
		case 10:
			m["labels"] = map[string]any{"l": fmt.Sprint(random.IntN(100))}
		case 11:
			annotations["other"] = fmt.Sprint(random.IntN(100))
		}
	}
	m["finalizers"] = finalizers
	if random.IntN(2) == 0 {
		delete(m, "resourceVersion")
	}
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			w.t.Fatal(err)
		}
		return string(b)
	}
	switch random.IntN(8) {
	case 0, 1:
		return "PUT", "json", text(o)
	case 2:
		patch, err := jsonpatch.CreateMergePatch(old, []byte(text(o)))
		if err != nil {
			w.t.Fatal(err)
		}
		return "PATCH", []string{"merge-patch+json", "strategic-merge-patch+json"}[random.IntN(2)], string(patch)
	case 3:
		return "PATCH", "merge-patch+json", text(map[string]any{"metadata": map[string]any{"finalizers": finalizers, "annotations": annotations}})
	case 4:
		return "PATCH", "strategic-merge-patch+json", text(map[string]any{"metadata": map[string]any{
			"$deleteFromPrimitiveList/finalizers": []any{lifecycle.ConfirmCascade}, "annotations": map[string]any{lifecycle.HeldAbove: nil},
		}})
	case 5:
		ops := []map[string]any{
			{"op": "remove", "path": "/metadata/annotations/" + strings.ReplaceAll(lifecycle.HeldAbove, "/", "~1")},
			{"op": "replace", "path": "/metadata/finalizers", "value": finalizers},
			{"op": "remove", "path": fmt.Sprintf("/metadata/finalizers/%d", random.IntN(3))},
			{"op": "add", "path": "/metadata/annotations", "value": annotations},
			{"op": "add", "path": "/metadata/labels", "value": map[string]any{"l": "p"}},
		}
		return "PATCH", "json-patch+json", text([]map[string]any{ops[random.IntN(len(ops))]})
	case 6:
		applied := map[string]any{"finalizers": finalizers, "annotations": annotations}
		for _, k := range []string{"finalizers", "annotations"} {
			if random.IntN(2) == 0 {
				delete(applied, k)
			}
		}
		return "PATCH", "apply-patch+yaml", text(map[string]any{"apiVersion": o["apiVersion"], "kind": o["kind"], "metadata": applied})
	default:
		return "DELETE", "json", `{"propagationPolicy":"` + []string{"Background", "Foreground"}[random.IntN(2)] + `","gracePeriodSeconds":0}`
	}
}

// TestMarksAreOurs: a client with every right neither changes the marks of a deletion nor
// creates an object with them. It confirms with the annotation.
func TestMarksAreOurs(t *testing.T) {
	t.Parallel()
	w := guarded(t, dbtest.OpenDB(t, sqldb.SQLite))
	w.hold(configMaps, "ConfigMap", "held", "")
	const held = configMaps + "/held"
	for _, c := range []struct{ patch, want string }{
		{`{"annotations":{"` + lifecycle.HeldAbove + `":"9"}}`, `metadata.annotations[lifecycle.exeunt.dev/held-above]: Forbidden: is set by the server alone`},
		{`{"annotations":{"` + lifecycle.HeldAbove + `":null}}`, `metadata.annotations[lifecycle.exeunt.dev/held-above]: Forbidden: is set by the server alone`},
		{`{"finalizers":null}`, `metadata.finalizers: Forbidden: lifecycle.exeunt.dev/confirm-cascade holds the deletion until it is confirmed`},
	} {
		r := w.send("PATCH", held, `{"metadata":`+c.patch+`}`, "Content-Type: application/merge-patch+json")
		if r.code != http.StatusUnprocessableEntity || !strings.Contains(r.get("message"), c.want) {
			t.Errorf("%s: %d %s, want %s", c.patch, r.code, r.body, c.want)
		}
	}
	for _, metadata := range []string{
		`"annotations":{"` + lifecycle.HeldAbove + `":"9"}`, `"finalizers":["` + lifecycle.PropagateGrace + `"]`,
	} {
		for path, kind := range map[string]string{configMaps: `"kind":"ConfigMap","apiVersion":"v1"`, widgets: `"kind":"Widget","apiVersion":"test.dev/v1"`} {
			r := w.send("POST", path, `{`+kind+`,"metadata":{"name":"new",`+metadata+`}}`)
			if r.code != http.StatusUnprocessableEntity || !strings.Contains(r.get("message"), "is set by the server alone") {
				t.Errorf("create with %s: %d %s", metadata, r.code, r.body)
			}
		}
	}
	w.patch(held, `{"metadata":{"annotations":{"`+lifecycle.ConfirmCascade+`":"2"}}}`)

	// The guard's finalizer may be added to an ACTIVE object; only who may confirm removes it.
	w.configMap("kept", `,"finalizers":["`+lifecycle.ConfirmCascade+`"]`)
	remove := func(user string) reply {
		return w.as(user, nil, "PATCH", configMaps+"/kept", `{"metadata":{"finalizers":null}}`, "Content-Type: application/merge-patch+json")
	}
	if r := remove("writer"); r.code != http.StatusForbidden || !strings.Contains(r.body, "cannot confirm-cascade resource") {
		t.Errorf("removed by a writer: %d %s", r.code, r.body)
	}
	w.patch(configMaps+"/kept", `{"metadata":{"finalizers":null}}`)
}

// stripper is a mutating webhook that removes what holds a deletion.
type stripper struct{ judge }

func (stripper) Handles(operation admission.Operation) bool { return operation == admission.Update }

func (stripper) Selects(_ schema.GroupResource, _ string, operation admission.Operation) bool {
	return operation == admission.Update
}

func (stripper) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return err
	}
	m.SetFinalizers(nil)
	m.SetAnnotations(map[string]string{lifecycle.ConfirmCascade: "1000"})
	return nil
}

func (stripper) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return nil
}

// TestMarksAgainstWebhooks: what a mutating webhook changes is refused as if the client
// had sent it.
func TestMarksAgainstWebhooks(t *testing.T) {
	t.Parallel()
	w := guarded(t, dbtest.OpenDB(t, sqldb.SQLite))
	w.hold(configMaps, "ConfigMap", "held", "")
	w.api.Admission = stripper{}
	before, _ := w.guardOf(configMaps + "/held")
	r := w.as("writer", nil, "PATCH", configMaps+"/held", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type: application/merge-patch+json")
	if after, _ := w.guardOf(configMaps + "/held"); r.code != http.StatusUnprocessableEntity || !reflect.DeepEqual(after, before) {
		t.Errorf("answered %d %s; the guard is %+v, was %+v", r.code, r.body, after, before)
	}
}

// TestAnnotationsAreChecked: a value of our annotations that means nothing is refused, on every kind and by every kind of
// write; one that was stored before the rule does not stop other updates.
func TestAnnotationsAreChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.Options{})
	w.define()
	for _, k := range []struct{ path, head, rest string }{
		{"/api/v1/namespaces", `"apiVersion":"v1","kind":"Namespace"`, ""},
		{configMaps, `"apiVersion":"v1","kind":"ConfigMap"`, ""},
		{deployments, `"apiVersion":"apps/v1","kind":"Deployment"`, "," + deploymentSpec},
		{widgets, `"apiVersion":"test.dev/v1","kind":"Widget"`, ""},
	} {
		created := w.want(http.StatusCreated, "POST", k.path, `{`+k.head+`,"metadata":{"name":"good"}`+k.rest+`}`)
		for name, values := range map[string][]string{
			lifecycle.MaxCascade: {"abc", "1,000", "-1"}, lifecycle.ArchiveFor: {"forever"}, lifecycle.ConfirmCascade: {"all"}, lifecycle.PropagateGrace: {"soon"},
		} {
			for _, value := range values {
				metadata := func(object string) string {
					return fmt.Sprintf(`"metadata":{"name":%q,"annotations":{%q:%q}}`, object, name, value)
				}
				good := k.path + "/good"
				for _, r := range []reply{
					w.send("POST", k.path, `{`+k.head+`,`+metadata("bad")+k.rest+`}`),
					w.send("POST", k.path+"?fieldValidation=Ignore&pretty=true", `{`+k.head+`,`+metadata("bad")+k.rest+`}`),
					w.send("PUT", good, `{`+k.head+`,`+strings.Replace(metadata("good"), `{`, `{"resourceVersion":"`+created.get("metadata.resourceVersion")+`",`, 1)+k.rest+`}`),
					w.send("PATCH", good, `{`+metadata("good")+`}`, "Content-Type: application/merge-patch+json"),
					w.send("PATCH", good+"?fieldManager=m", `{`+k.head+`,`+metadata("good")+`}`, "Content-Type: application/apply-patch+yaml"),
				} {
					if r.code != http.StatusUnprocessableEntity || !strings.Contains(r.get("message"), "metadata.annotations["+name+"]: Invalid value: ") {
						t.Errorf("%s=%s on %s: %d %s", name, value, k.path, r.code, r.body)
					}
				}
			}
		}
	}
	ctx, key := context.Background(), object.Key{Kind: object.Namespaces, Name: "good"}
	o, err := w.api.Store.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	m.Annotations, m.Finalizers = map[string]string{lifecycle.MaxCascade: "abc"}, []string{"test.dev/hold"}
	body, err := object.WithMeta(o.Body, m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.api.Store.Update(ctx, store.UpdateRequest{Key: key, IfRevision: o.Revision, Meta: m, Body: body}); err != nil {
		t.Fatal(err)
	}
	w.patch("/api/v1/namespaces/good", `{"metadata":{"labels":{"a":"b"}}}`)
	w.want(http.StatusOK, "DELETE", "/api/v1/namespaces/good", "")
	w.patch("/api/v1/namespaces/good", `{"metadata":{"finalizers":null}}`)
	w.patch("/api/v1/namespaces/good", `{"metadata":{"annotations":{"`+lifecycle.MaxCascade+`":null}}}`)
}

// TestAnotherUserConfirms: in a namespace with the setting, the user who asked for a deletion
// cannot confirm it, before or while it waits, and cannot end the setting without the right.
// Another user can; so can anybody without the setting.
func TestAnotherUserConfirms(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := guarded(t, db)
		masters := []string{"system:masters"}
		cluster := "/apis/rbac.authorization.k8s.io/v1/clusterroles"
		annotate := func(user, path, name, value string) reply {
			return w.as(user, masters, "PATCH", path, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, name, value), "Content-Type: application/merge-patch+json")
		}
		wantCode := func(what string, r reply, code int, says string) {
			t.Helper()
			if r.code != code || !strings.Contains(r.body, says) {
				t.Errorf("%s: %d %s", what, r.code, r.body)
			}
		}
		held := func(path, kind, name string) string {
			t.Helper()
			apiVersion := "v1"
			if path == cluster {
				apiVersion = "rbac.authorization.k8s.io/v1"
			}
			uid := w.want(http.StatusCreated, "POST", path, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, apiVersion, kind, name)).get("metadata.uid")
			for i := range 2 {
				w.configMap(fmt.Sprintf("%s-%s-%d", strings.ToLower(kind), name, i), fmt.Sprintf(`,"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q}]`, apiVersion, kind, name, uid))
			}
			if r := w.as("alice", masters, "DELETE", path+"/"+name, ""); r.code != http.StatusOK {
				t.Fatal(r.body)
			}
			return path + "/" + name
		}
		wantCode("set by alice", annotate("alice", shop, lifecycle.ConfirmBy, `"another-user"`), http.StatusOK, "")
		for _, path := range []string{held(configMaps, "ConfigMap", "held"), held(cluster, "ClusterRole", "held")} {
			wantCode("alice, "+path, annotate("alice", path, lifecycle.ConfirmCascade, `"3"`), http.StatusForbidden, "you asked for its deletion, so another user must confirm it: namespace shop")
			wantCode("bob, "+path, annotate("bob", path, lifecycle.ConfirmCascade, `"3"`), http.StatusOK, "")
		}
		w.configMap("before", "")
		wantCode("beforehand", annotate("bob", configMaps+"/before", lifecycle.ConfirmCascade, `"3"`), http.StatusForbidden, "must be confirmed when it waits, not before")
		wantCode("created with it", w.as("bob", masters, "POST", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new","annotations":{"`+lifecycle.ConfirmCascade+`":"3"}}}`), http.StatusForbidden, "not before")

		// Without the right confirm-cascade the guard does not become weaker.
		for name, values := range map[string][]string{lifecycle.MaxCascade: {`"2"`, `"0"`, "null"}, lifecycle.ConfirmBy: {"null"}} {
			for _, value := range values {
				r := w.as("writer", nil, "PATCH", shop, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, name, value), "Content-Type: application/merge-patch+json")
				wantCode("writer, "+name+" "+value, r, http.StatusForbidden, "cannot make its guard weaker")
			}
		}
		r := w.as("writer", nil, "PATCH", "/api/v1/namespaces/full", `{"metadata":{"annotations":{"`+lifecycle.ConfirmBy+`":"another-user"}}}`, "Content-Type: application/merge-patch+json")
		wantCode("writer makes it stronger", r, http.StatusOK, "")

		wantCode("the setting ends", annotate("bob", shop, lifecycle.ConfirmBy, "null"), http.StatusOK, "")
		wantCode("alice without the setting", annotate("alice", held(configMaps, "ConfigMap", "free"), lifecycle.ConfirmCascade, `"3"`), http.StatusOK, "")
	})
}
