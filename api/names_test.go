package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

// strangeNames are names that some part of a server may read in another way than the rest.
var strangeNames = []string{
	"backdoor\a", "a\nb", "\x1b]0;x\a", "\x7f", "a\u0085b", "\u202egnp", " ", " a ", "a b", ".", "..", "...", "..a", "-", "%", "%2e", "%2F", "a%", "/", "a/b", "\\", "?", "a?b=c", "#", "a;b", "a:b", "*", "+",
	"ä", "日本", "e\u0301", "\U0001F4A5", "\ufffd", "\ufeff", "status", "namespaces", "watch", "proxy", "NAME", "Ab", "a_b", "~", "'", `"`, "<b>", "&", "", "\x00", "a\x00", "\xff", "a\xc3",
	strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 253), strings.Repeat("a", 254), strings.Repeat("\x01", 1024), strings.Repeat("ü", 512), strings.Repeat("b", 1025), hash("c", 1024), hash("d", 1025), hash("e", 5000), "10.0.0.1",
}

// hash returns a text that no database can compress.
func hash(seed string, length int) (text string) {
	for len(text) < length {
		text += fmt.Sprintf("%x", sha256.Sum256([]byte(seed+text)))
	}
	return text[:length]
}

// randomName is a mix of those, of letters and of any characters.
func randomName(rng *rand.Rand) string {
	var name strings.Builder
	for range 1 + rng.IntN(4) {
		switch rng.IntN(4) {
		case 0:
			name.WriteString(strangeNames[rng.IntN(len(strangeNames))])
		case 1:
			name.WriteRune(rune(rng.IntN(0x100)))
		case 2:
			name.WriteRune(rune(rng.IntN(0x11000)))
		default:
			fmt.Fprintf(&name, "%x", rng.IntN(1000))
		}
	}
	return name.String()
}

// TestAcceptedNamesArePaths: in every version of every kind, a name that create accepts is a name
// that a path can have, and the path is read as that name.
func TestAcceptedNamesArePaths(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.define()
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	names := slices.Clone(strangeNames)
	for range 200 {
		names = append(names, randomName(rng))
	}
	for _, k := range w.api.Kinds.Snapshot().Kinds {
		if k.Ephemeral || k.Storage == object.Definitions { // never stored; names follow from a field
			continue
		}
		for _, v := range k.Versions {
			e, err := w.api.endpoint(v)
			if err != nil {
				t.Fatal(err)
			}
			accepted := 0
			for _, name := range names {
				if !acceptsName(v, name) {
					continue
				}
				accepted++
				for subresource := range e.verbs {
					path := strings.TrimSuffix(collectionOf(v)+"/"+url.PathEscape(name)+"/"+subresource, "/")
					req := fuzzRequest("DELETE", path, "")
					if req == nil {
						t.Fatalf("%q is not a path", path)
					}
					if problem := pathProblem(req); problem != "" {
						t.Errorf("%s accepts the name %.99q, and %.99s is refused: %s", k.Storage, name, path, problem)
					}
					info, err := w.api.resolver.NewRequestInfo(req)
					if err != nil || info.Name != name || info.Resource != k.Plural || info.Subresource != subresource {
						t.Errorf("%.99s is read as %+v, %v", path, info, err)
					}
				}
			}
			if accepted == 0 {
				t.Errorf("%s accepts no name of %d", k.Storage, len(names))
			}
		}
	}
}

// acceptsName reports whether no rule of a create refuses the name. Rules on other fields may.
func acceptsName(v *kind.Version, name string) bool {
	obj := v.New()
	m, err := meta.Accessor(obj)
	if err != nil {
		return false // answered and never stored
	}
	m.SetName(name)
	c := lifecycle.Creation{Now: metav1.Now().Time, UID: "u", Suffix: "x"}
	if v.Kind.Namespaced {
		c.Namespace = "shop"
	}
	_, err = lifecycle.BeforeCreate(genericrequest.WithNamespace(genericrequest.NewContext(), c.Namespace), namesOnly{v.Strategy}, obj, c)
	return err == nil && m.GetName() == name // a LimitRange without a name gets one
}

// namesOnly is a strategy without its rules on other fields than the name.
type namesOnly struct{ lifecycle.Strategy }

func (s namesOnly) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	_, errs := s.Strategy.Create(ctx, obj)
	return nil, slices.DeleteFunc(errs, func(err *field.Error) bool { return !strings.HasPrefix(err.Field, "metadata") })
}

func collectionOf(v *kind.Version) string {
	root := "/apis/" + v.GVK.Group + "/" + v.GVK.Version
	if v.GVK.Group == "" {
		root = "/api/" + v.GVK.Version
	}
	if v.Kind.Namespaced {
		root += "/namespaces/shop"
	}
	return root + "/" + v.Kind.Plural
}

// nameRow is a kind whose objects need few fields.
type nameRow struct{ collection, storage, fields string }

var nameRows = []nameRow{
	{"/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings", "rolebindings.rbac.authorization.k8s.io", `,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"}`},
	{"/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles", "roles.rbac.authorization.k8s.io", ``},
	{"/apis/rbac.authorization.k8s.io/v1/clusterroles", "clusterroles.rbac.authorization.k8s.io", ``},
	{"/api/v1/namespaces/shop/events", "events", `,"involvedObject":{"namespace":"shop"}`},
	{configMaps, "configmaps", ``},
	{"/api/v1/namespaces/shop/secrets", "secrets", `,"type":"Opaque"`},
	{"/apis/coordination.k8s.io/v1/namespaces/shop/leases", "leases.coordination.k8s.io", ``},
	{widgets, "widgets.test.dev", ``},
	{"/api/v1/namespaces", "namespaces", ``},
}

// eachNameWorld runs a test on each of its engines, through the fast paths and through the library.
func eachNameWorld(t *testing.T, test func(t *testing.T, w *world)) {
	for _, engine := range dbtest.EnginesOf(t) {
		for _, path := range []string{"fast", "library"} {
			t.Run(string(engine)+"/"+path, func(t *testing.T) {
				w := newWorld(t, store.Options{DB: dbtest.OpenDB(t, engine)})
				w.define()
				w.eachEndpoint(func(e *endpoint) {
					if path == "library" {
						e.json = nil
					}
				})
				test(t, w)
			})
		}
	}
}

var randomNames = flag.Int("names", 4, "how many random names TestNamesCanBeDeleted tries of each kind")

// TestNamesCanBeDeleted: what a create accepts can be read and deleted by its path.
func TestNamesCanBeDeleted(t *testing.T) {
	eachNameWorld(t, func(t *testing.T, w *world) {
		seed := rand.Uint64()
		t.Log("seed", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		for _, row := range nameRows {
			names := slices.Clone(strangeNames)
			for range *randomNames {
				names = append(names, randomName(rng))
			}
			for _, name := range names {
				for _, field := range []string{"name", "generateName"} {
					text, err := json.Marshal(name)
					if err != nil {
						t.Fatal(err)
					}
					r := w.send("POST", row.collection, fmt.Sprintf(`{"metadata":{%q:%s}%s}`, field, text, row.fields))
					if r.code == http.StatusCreated {
						w.readAndDelete(t, row.collection, r.get("metadata.name"))
					} else if r.code >= 500 || r.code < 400 {
						t.Errorf("POST %s %s %q: %d %s", row.collection, field, name, r.code, r.body)
					}
				}
			}
		}
	})
}

// TestOldNamesCanBeDeleted: earlier versions stored names that a create refuses now.
func TestOldNamesCanBeDeleted(t *testing.T) {
	eachNameWorld(t, func(t *testing.T, w *world) {
		for _, row := range nameRows {
			for _, name := range []string{"backdoor\a", "a\nb", "\x1b[31m", "\u0085", "\x7f", strings.Repeat("d", 5000)} {
				key := object.Key{Kind: row.storage, Name: name}
				if strings.Contains(row.collection, "/shop/") {
					key.Namespace = "shop"
				}
				fields := row.fields
				if row.storage == object.Namespaces {
					fields = storetest.NamespaceFields
				}
				storetest.Create(t, w.api.Store, storetest.Object(t, key, fields, func(m *metav1.ObjectMeta) {
					if row.storage != object.Namespaces {
						m.Finalizers = []string{"test.dev/hold"}
					}
				}))
				path := row.collection + "/" + url.PathEscape(name)
				if row.storage == object.Namespaces { // no collector empties it here
					w.want(http.StatusOK, "GET", path, "")
					w.want(http.StatusOK, "DELETE", path, "")
					continue
				}
				w.want(http.StatusOK, "DELETE", path, "")
				w.want(http.StatusOK, "GET", path, "")
				w.patch(path, `{"metadata":{"finalizers":null}}`)
				w.want(http.StatusNotFound, "GET", path, "")
			}
		}
	})
}

func (w *world) readAndDelete(t *testing.T, collection, name string) {
	t.Helper()
	path := collection + "/" + url.PathEscape(name)
	for _, query := range []string{"", "?pretty=true"} {
		if r := w.send("GET", path+query, ""); r.code != http.StatusOK || r.get("metadata.name") != name {
			t.Errorf("GET %s: %d %s", path+query, r.code, r.body)
		}
	}
	if r := w.send("DELETE", path, ""); r.code != http.StatusOK {
		t.Errorf("DELETE %s: %d %s", path, r.code, r.body)
	}
	if r := w.send("GET", path, ""); r.code != http.StatusNotFound && r.get("metadata.deletionTimestamp") == "" {
		t.Errorf("GET %s after its delete: %d %s", path, r.code, r.body)
	}
}

// TestNamesOfCustomKinds: a definition, and the objects of its kind, can be deleted by their paths,
// also where the library gives a segment of the path another meaning.
func TestNamesOfCustomKinds(t *testing.T) {
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	w := newWorld(t, store.Options{})
	for _, plural := range []string{"namespaces", "watch", "proxy", "redirect", "status", "finalize", "scale", "a-b", strings.Repeat("p", 63), "widgets%", "a.b", "a\a", ".."} {
		for _, scope := range []string{"Namespaced", "Cluster"} {
			group := strings.ToLower(scope) + ".test.dev"
			name := plural + "." + group
			text, err := json.Marshal(plural)
			if err != nil {
				t.Fatal(err)
			}
			r := w.send("POST", definitions, fmt.Sprintf(`{"metadata":{"name":%s%s"},"spec":{"group":%q,"scope":%q,"names":{"plural":%s,"kind":"Thing"},
				"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, text[:len(text)-1], "."+group, group, scope, text))
			if r.code >= 500 {
				t.Errorf("POST of definition %q: %d %s", name, r.code, r.body)
			}
			if r.code != http.StatusCreated {
				continue
			}
			dbtest.Until(w.t, name+" is served", func() error {
				if r := w.send("GET", "/apis/"+group+"/v1", ""); !strings.Contains(r.body, `"name":"`+plural+`"`) {
					return fmt.Errorf("%d %s", r.code, r.body)
				}
				return nil
			})
			collection := "/apis/" + group + "/v1/" + plural
			if scope == "Namespaced" {
				collection = "/apis/" + group + "/v1/namespaces/shop/" + plural
			}
			if r := w.send("POST", collection, fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Thing","metadata":{"name":"x"}}`, group)); r.code == http.StatusCreated {
				w.readAndDelete(t, collection, "x")
			} else if r.code >= 500 {
				t.Errorf("POST %s: %d %s", collection, r.code, r.body)
			}
			w.readAndDelete(t, definitions, name)
		}
	}
}
