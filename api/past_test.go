package api

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/api/discovery"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// age is a cell of a Table: how old an object is now.
var age = regexp.MustCompile(`"\d+m?s"`)

// TestAtVersion: below /at/VERSION a client gets what it would have got then, byte for byte, in each form and page, also
// after compaction.
func TestAtVersion(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, store.Options{DB: db, KeepRevisions: 1, CompactEvery: 10 * time.Millisecond, History: store.HistoryOptions{For: time.Hour}})
		forms := []string{"Accept: application/json", "Accept: application/yaml", "Accept: application/vnd.kubernetes.protobuf", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"}
		paths := []string{configMaps + "/a", configMaps, "/api/v1/configmaps?labelSelector=app=web", "/api/v1/namespaces", configMaps + "/b"}
		type answer struct{ path, form, version, body string }
		var then []answer
		remember := func(version string) {
			for _, path := range paths {
				for _, form := range forms {
					then = append(then, answer{path, form, version, w.send("GET", path, "", form).body})
				}
			}
		}
		version := w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"a","labels":{"app":"web"}},"data":{"k":"1"}}`).get("metadata.resourceVersion")
		remember(version)
		version = w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"b"}}`).get("metadata.resourceVersion")
		remember(version)
		for i := range 5 {
			version = w.want(http.StatusOK, "PUT", configMaps+"/a", fmt.Sprintf(`{"metadata":{"name":"a","labels":{"app":"web"}},"data":{"k":"%d"}}`, i+2)).get("metadata.resourceVersion")
			remember(version)
		}
		before := then[len(then)-len(paths)*len(forms)-1].version
		w.want(http.StatusOK, "DELETE", configMaps+"/a", "")
		dbtest.Await(t, "the log is compacted", func() bool {
			return w.send("GET", configMaps+"?limit=1&resourceVersion="+before+"&resourceVersionMatch=Exact", "").code == http.StatusGone
		})
		for _, a := range then {
			got := w.send("GET", "/at/"+a.version+a.path, "", a.form).body
			if diff := cmp.Diff(age.ReplaceAllString(a.body, ""), age.ReplaceAllString(got, "")); diff != "" {
				t.Fatalf("GET %s at %s, %s:\n%s", a.path, a.version, a.form, diff)
			}
		}
		page := w.want(http.StatusOK, "GET", "/at/"+version+configMaps+"?limit=1", "")
		next := w.want(http.StatusOK, "GET", "/at/"+version+configMaps+"?limit=1&continue="+page.get("metadata.continue"), "")
		if page.get("items.0.metadata.name") != "a" || next.get("items.0.metadata.name") != "b" {
			t.Errorf("pages %s and %s", page.body, next.body)
		}
		if left := page.get("metadata.remainingItemCount"); left != "" { // only today's objects can be counted
			t.Errorf("%s are left behind a page of the past", left)
		}
		if got := w.send("GET", "/at/3"+configMaps+"?continue="+page.get("metadata.continue"), ""); got.code != http.StatusBadRequest {
			t.Errorf("a token of another version: %d %s", got.code, got.body)
		}
	})
}

// TestAtRefused: what is no read of a known past is refused, and says what to do.
func TestAtRefused(t *testing.T) {
	w := newWorld(t, store.Options{History: store.HistoryOptions{For: time.Hour}})
	w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	w.api.Now = func() time.Time { return time.Date(2500, 1, 1, 0, 0, 0, 900_000_000, time.UTC) }
	w.want(http.StatusOK, "GET", "/at/2499-12-31T23:59:59Z"+configMaps, "")
	for _, c := range []struct {
		method, path string
		code         int
		says         string
	}{
		{"POST", "/at/2" + configMaps, 405, "can be read and not changed"},
		{"DELETE", "/at/2" + configMaps + "/a", 405, "can be read and not changed"},
		{"GET", "/at/2" + configMaps + "?watch=true", 405, "cannot be watched"},
		{"GET", "/at/noon" + configMaps, 400, "neither a version"},
		{"GET", "/at/-1" + configMaps, 400, "versions begin at 1"},
		{"GET", "/at/99999999" + configMaps, 504, "Too large resource version"},
		{"GET", "/at/2999-01-01T00:00:00Z" + configMaps, 400, "not in the past"},
		{"GET", "/at/2500-01-01T00:00:00Z" + configMaps, 400, "not in the past"}, // this second: more may happen in it
		{"GET", "/at/1999-01-01T00:00:00Z" + configMaps, 410, "does not reach back to 1999-01-01T00:00:00Z: it begins at 20"},
		{"GET", "/at/2" + configMaps + "?resourceVersion=7", 400, "leave out resourceVersion"},
		{"GET", "/at/2/metrics", 404, ""},
		{"GET", "/at/2/at/2" + configMaps, 404, ""},
		{"GET", "/at/2" + configMaps + "/%2e%2e", 404, ""},
		{"GET", "/at/2", 400, "/at/TIME/"},
	} {
		got := w.send(c.method, c.path, "")
		if got.code != c.code || !strings.Contains(got.body, c.says) {
			t.Errorf("%s %s: %d %s, want %d %q", c.method, c.path, got.code, got.body, c.code, c.says)
		}
	}
	for _, path := range []string{"/api", "/apis", "/api/v1", "/version"} {
		if got := w.send("GET", "/at/2"+path, ""); got.code != http.StatusOK {
			t.Errorf("GET /at/2%s: %d", path, got.code)
		}
	}
}

// TestDiscoveryOfThePast: discovery has the verb history for the kinds of which the server keeps earlier versions, in both
// forms.
func TestDiscoveryOfThePast(t *testing.T) {
	for _, c := range []struct {
		options store.HistoryOptions
		want    map[string]bool
	}{
		{store.HistoryOptions{For: time.Hour, Exclude: []string{"configmaps"}}, map[string]bool{"configmaps": false, "secrets": true, "bindings": false}},
		{store.HistoryOptions{}, map[string]bool{"configmaps": false, "secrets": false}},
	} {
		w := newWorld(t, store.Options{History: c.options})
		plain := gjson.Get(w.want(http.StatusOK, "GET", "/api/v1", "").body, "resources")
		all := gjson.Get(w.want(http.StatusOK, "GET", "/api", "", "Accept: "+discovery.AggregatedType).body, "items.0.versions.0.resources")
		for resource, want := range c.want {
			for _, verbs := range []gjson.Result{plain.Get(`#(name=="` + resource + `").verbs`), all.Get(`#(resource=="` + resource + `").verbs`)} {
				if got := strings.Contains(verbs.Raw, `"history"`); got != want {
					t.Errorf("%+v: the verbs of %s are %s", c.options, resource, verbs.Raw)
				}
			}
		}
	}
}

// TestAtNeedsRights: the past needs the right to read the object now, and the verb history on it.
func TestAtNeedsRights(t *testing.T) {
	w := newWorld(t, store.Options{History: store.HistoryOptions{For: time.Hour}})
	w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	version := w.want(http.StatusCreated, "POST", "/api/v1/namespaces/shop/secrets", `{"metadata":{"name":"s"}}`).get("metadata.resourceVersion")
	o := accesstest.Objects()
	rule := func(verbs string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: resources, Verbs: strings.Fields(verbs)}
	}
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"reader":    {rule("get list", "configmaps", "secrets")},
		"statuses":  {rule("get", "pods/status"), rule("history", "pods")},
		"both":      {rule("get history", "pods/status")},
		"historian": {rule("history", "configmaps", "secrets"), rule("get list", "configmaps")},
	} {
		o.ClusterRoles[name] = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
		o.RoleBindings[types.NamespacedName{Namespace: "shop", Name: name}] = &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
		}
	}
	w.api.Access = access.NewControl(directory.Of(o), access.Config{})
	for _, c := range []struct {
		user, path string
		code       int
	}{
		{"reader", configMaps + "/a", 403},
		{"reader", configMaps, 403},
		{"historian", configMaps + "/a", 200},
		{"historian", configMaps, 200},
		{"historian", "/api/v1/configmaps", 403},
		{"historian", "/api/v1/namespaces/shop/secrets", 403},
		{"historian", "/api/v1/namespaces/shop/secrets/s", 403},
		{"nobody", configMaps, 403},
		{"statuses", "/api/v1/namespaces/shop/pods/p/status", 403},
		{"both", "/api/v1/namespaces/shop/pods/p/status", 404},
	} {
		if got := w.as(c.user, nil, "GET", "/at/"+version+c.path, ""); got.code != c.code {
			t.Errorf("%s: GET %s: %d %s, want %d", c.user, c.path, got.code, got.body, c.code)
		}
	}
}

// TestAuthors: the log has who made a change: user, client, verb and request.
func TestAuthors(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, store.Options{DB: db})
		w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"a"}}`)
		w.send("PATCH", configMaps+"/a", `{"data":{"k":"1"}}`, "Content-Type: application/merge-patch+json", "User-Agent: kubectl/v1 \x01\nnot", "Audit-Id: request-7")
		w.send("DELETE", configMaps+"/a", "", "Audit-Id: request-8")
		rows, err := db.Reader().Query(`SELECT author FROM changes WHERE name = 'a' ORDER BY revision`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var got []store.Author
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				t.Fatal(err)
			}
			parts := append(strings.SplitN(text, "\n", 4), make([]string, 4)...) // as Author.String writes it
			got = append(got, store.Author{User: parts[0], Client: parts[1], Verb: parts[2], RequestID: parts[3]})
		}
		if len(got) != 3 || got[0].Client != "tester/1.0" || got[0].Verb != "create" || got[0].User == "" || got[0].RequestID == "" ||
			got[1].Client != "kubectl/v1 not" || got[1].Verb != "patch" || got[1].RequestID != "request-7" || got[2].Verb != "delete" {
			t.Errorf("authors %+v", got)
		}
	})
}

// TestAtByTheDefinitionOfThen: below /at/ custom kinds, their columns, their versions and the discovery documents are those of
// then, also of a kind whose definition has changed or is gone, and after compaction.
func TestAtByTheDefinitionOfThen(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, store.Options{DB: db, KeepRevisions: 1, CompactEvery: 10 * time.Millisecond, History: store.HistoryOptions{For: time.Hour}})
		const (
			definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
			one         = "/apis/then.dev/v1/namespaces/shop/gadgets"
			two         = "/apis/then.dev/v2/namespaces/shop/gadgets"
			aggregated  = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
			table       = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"
		)
		version := func(name, stored, column string) string {
			return fmt.Sprintf(`{"name":%q,"served":true,"storage":%s,"additionalPrinterColumns":[{"name":%q,"type":"string","jsonPath":".spec.color"}],
				"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"color":{"type":"string"}}}}}}}`, name, stored, column)
		}
		definition := func(short, conversion string, versions ...string) string {
			return fmt.Sprintf(`{"metadata":{"name":"gadgets.then.dev"},"spec":{"group":"then.dev","scope":"Namespaced","names":{"plural":"gadgets","kind":"Gadget","shortNames":[%q]},
				"conversion":%s,"versions":[%s]}}`, short, conversion, strings.Join(versions, ","))
		}
		const none, webhook = `{"strategy":"None"}`, `{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:1/"}}}`
		paths := []string{one, two, one + "/a", two + "/a", "/apis", "/apis/then.dev", "/apis/then.dev/v1", "/apis/then.dev/v2"}
		forms := []string{"Accept: application/json", table, aggregated}
		type answer struct {
			path, form, version, body string
			code                      int
		}
		var then []answer
		remember := func() {
			version := w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"generateName":"a-"}}`).get("metadata.resourceVersion")
			for _, path := range paths {
				for _, form := range forms {
					got := w.send("GET", path, "", form)
					then = append(then, answer{path, form, version, got.body, got.code})
				}
			}
		}
		served := func(says string) {
			dbtest.Until(t, "the kind is served", func() error {
				if r := w.send("GET", "/apis", "", aggregated); strings.Contains(r.body, "then.dev") != (says != "") || !strings.Contains(r.body, says) {
					return fmt.Errorf("%s", r.body)
				}
				return nil
			})
			remember()
		}
		remember()
		w.want(http.StatusCreated, "POST", definitions, definition("ga", none, version("v1", "true", "Color")))
		served(`"ga"`)
		w.want(http.StatusCreated, "POST", one, `{"apiVersion":"then.dev/v1","kind":"Gadget","metadata":{"name":"a"},"spec":{"color":"red"}}`)
		remember()
		change := func(body string) {
			now := w.want(http.StatusOK, "GET", definitions+"/gadgets.then.dev", "")
			body = strings.Replace(body, `"metadata":{`, `"metadata":{"resourceVersion":"`+now.get("metadata.resourceVersion")+`",`, 1)
			w.want(http.StatusOK, "PUT", definitions+"/gadgets.then.dev", body)
		}
		change(definition("gb", none, version("v2", "true", "Paint"), version("v1", "false", "Colour")))
		served(`"gb"`)
		change(definition("gc", webhook, version("v2", "true", "Paint"), version("v1", "false", "Hue")))
		served(`"gc"`)
		converted := then[len(then)-1].version
		w.want(http.StatusOK, "DELETE", definitions+"/gadgets.then.dev", "")
		served("")
		for _, a := range then {
			if a.code == http.StatusInternalServerError {
				continue // this server calls no webhook, then either
			}
			got := w.send("GET", "/at/"+a.version+a.path, "", a.form)
			if a.code != got.code || a.code == http.StatusOK && lasting(a.body) != lasting(got.body) {
				t.Fatalf("GET %s at %s, %s:\nthen %d %s\nnow  %d %s", a.path, a.version, a.form, a.code, a.body, got.code, got.body)
			}
		}
		for _, path := range []string{two, two + "/a"} { // a was stored in v1
			if got := w.send("GET", "/at/"+converted+path, ""); got.code != http.StatusNotAcceptable || got.get("reason") != "NotAcceptable" || !strings.Contains(got.body, "not called for the past: read the Gadget in then.dev/v1") {
				t.Errorf("%s by a webhook: %d %s", path, got.code, got.body)
			}
			w.want(http.StatusOK, "GET", "/at/"+converted+strings.Replace(path, two, one, 1), "")
		}
		if got := w.send("GET", "/at/"+converted+"/openapi/v3", ""); got.code != http.StatusMethodNotAllowed {
			t.Errorf("OpenAPI of then: %d %s", got.code, got.body)
		}
		if got := w.send("GET", "/at/1999-01-01T00:00:00Z/apis", ""); got.code != http.StatusOK {
			t.Errorf("discovery of an unknown time, before the request that says so: %d %s", got.code, got.body)
		}
	})
}

// lasting is an answer without ages and versions: a list of now has a later version than its last change.
func lasting(body string) string {
	return regexp.MustCompile(`"resourceVersion":"\d+"`).ReplaceAllString(age.ReplaceAllString(body, ""), "")
}
