// Package discovery builds the documents that list the served kinds: one per group, or all in
// one for clients that ask for the aggregated form. It serves no requests.
package discovery

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/object"
)

// AggregatedType is the content type of the aggregated form.
const AggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

var subresourceVerbs = metav1.Verbs{"get", "patch", "update"}

// Keeps reports whether the server keeps earlier versions of a kind, by its storage name.
type Keeps func(kind string) bool

// verbs returns the verbs of a kind, and history if earlier versions of it are kept.
func (keeps Keeps) verbs(k *kind.Kind) metav1.Verbs {
	if k.Source != nil || k.Ephemeral || k.ReadOnly || !keeps(k.Storage) {
		return k.Verbs()
	}
	return append(slices.Clone(k.Verbs()), "history")
}

// Document returns the document at a path ("apis", "apps", "v1"), or nil. Host is the server's name, as
// the client knows it.
func Document(kinds *kind.Snapshot, path []string, host string, keeps Keeps) runtime.Object {
	core := path[0] == "api"
	switch {
	case len(path) == 1 && core:
		return &metav1.APIVersions{Versions: kinds.GroupVersions(""), ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: host}}}
	case len(path) == 1:
		return groupList(kinds)
	case len(path) == 2 && core:
		return resourceList(kinds, schema.GroupVersion{Version: path[1]}, keeps)
	case len(path) == 2:
		return group(kinds, path[1])
	case len(path) == 3 && !core:
		return resourceList(kinds, schema.GroupVersion{Group: path[1], Version: path[2]}, keeps)
	}
	return nil
}

// WantsAggregated reports whether the client prefers the aggregated form. Such
// clients list it before the plain form.
func WantsAggregated(req *http.Request) bool {
	for _, accept := range strings.Split(req.Header.Get("Accept"), ",") {
		params := strings.Split(strings.ReplaceAll(accept, " ", ""), ";")
		if params[0] != "application/json" {
			continue
		}
		if len(params) == 1 {
			return false
		}
		var group, version, as bool
		for _, p := range params[1:] {
			group = group || p == "g=apidiscovery.k8s.io"
			version = version || p == "v=v2"
			as = as || p == "as=APIGroupDiscoveryList"
		}
		if group && version && as {
			return true
		}
	}
	return false
}

// Cache keeps the aggregated documents of one snapshot of the kinds. It is safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	kinds *kind.Snapshot
	docs  map[bool]Aggregated // true: core group
}

// Aggregated is the aggregated form, as JSON.
type Aggregated struct {
	Body []byte
	ETag string
}

// Get returns the document of the core group, or of all others, and keeps it if it may be asked for again.
func (c *Cache) Get(kinds *kind.Snapshot, core, keep bool, keeps Keeps) (Aggregated, error) {
	if !keep {
		c = &Cache{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds != kinds {
		c.kinds, c.docs = kinds, map[bool]Aggregated{}
	}
	if doc, ok := c.docs[core]; ok {
		return doc, nil
	}
	body, err := json.Marshal(aggregated(kinds, core, keeps))
	if err != nil {
		return Aggregated{}, err
	}
	sum := sha256.Sum256(body)
	doc := Aggregated{body, `"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"`}
	c.docs[core] = doc
	return doc, nil
}

func aggregated(kinds *kind.Snapshot, core bool, keeps Keeps) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
	for _, name := range kinds.Groups() {
		if (name == "") != core {
			continue
		}
		item := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, version := range kinds.GroupVersions(name) {
			item.Versions = append(item.Versions, apidiscoveryv2.APIVersionDiscovery{
				Version: version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
				Resources: aggregatedResources(kinds, schema.GroupVersion{Group: name, Version: version}, keeps),
			})
		}
		list.Items = append(list.Items, item)
	}
	return list
}

func aggregatedResources(kinds *kind.Snapshot, gv schema.GroupVersion, keeps Keeps) []apidiscoveryv2.APIResourceDiscovery {
	var out []apidiscoveryv2.APIResourceDiscovery
	eachResource(kinds, gv, func(v *kind.Version) {
		scope := apidiscoveryv2.ScopeCluster
		if v.Kind.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		r := apidiscoveryv2.APIResourceDiscovery{
			Resource: v.Kind.Plural, SingularResource: v.Kind.Singular, Scope: scope, Verbs: keeps.verbs(v.Kind),
			ResponseKind: responseKind(v, v.GVK),
			ShortNames:   v.Kind.ShortNames, Categories: v.Kind.Categories,
		}
		for _, part := range subresourcesOf(v) {
			sub := apidiscoveryv2.APISubresourceDiscovery{Subresource: part.name, Verbs: part.verbs}
			sub.ResponseKind = responseKind(v, part.gvk)
			r.Subresources = append(r.Subresources, sub)
		}
		out = append(out, r)
	})
	return out
}

// responseKind is the kind of an answer in the aggregated form. Kubernetes leaves group
// and version empty if they equal the document's, except for custom kinds.
func responseKind(v *kind.Version, gvk schema.GroupVersionKind) *metav1.GroupVersionKind {
	if v.Kind.Definition == "" && gvk.GroupVersion() == v.GVK.GroupVersion() {
		return &metav1.GroupVersionKind{Kind: gvk.Kind}
	}
	out := metav1.GroupVersionKind(gvk)
	return &out
}

// subresourceInfo is a subresource as discovery shows it.
type subresourceInfo struct {
	name  string
	gvk   schema.GroupVersionKind
	verbs metav1.Verbs
}

func subresourcesOf(v *kind.Version) []subresourceInfo {
	var parts []subresourceInfo
	if v.Kind.Storage == object.Pods {
		parts = append(parts,
			subresourceInfo{"binding", corev1.SchemeGroupVersion.WithKind("Binding"), metav1.Verbs{"create"}},
			subresourceInfo{"ephemeralcontainers", v.GVK, subresourceVerbs},
			subresourceInfo{"eviction", policyv1.SchemeGroupVersion.WithKind("Eviction"), metav1.Verbs{"create"}},
			subresourceInfo{"resize", v.GVK, subresourceVerbs})
	}
	if v.Kind.Storage == builtin.SigningRequests {
		parts = append(parts, subresourceInfo{"approval", v.GVK, subresourceVerbs})
	}
	if v.Kind.IsNamespace() {
		parts = append(parts, subresourceInfo{"finalize", v.GVK, metav1.Verbs{"update"}})
	}
	if v.Scale != nil {
		parts = append(parts, subresourceInfo{"scale", autoscalingv1.SchemeGroupVersion.WithKind("Scale"), subresourceVerbs})
	}
	if v.Status != nil {
		parts = append(parts, subresourceInfo{"status", v.GVK, subresourceVerbs})
	}
	if v.Kind.Storage == "serviceaccounts" {
		parts = append(parts, subresourceInfo{"token", authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"), metav1.Verbs{"create"}})
	}
	return parts
}

func eachResource(kinds *kind.Snapshot, gv schema.GroupVersion, visit func(*kind.Version)) {
	for _, k := range kinds.OfGroup(gv.Group) {
		for _, v := range k.Versions {
			if v.GVK.Version == gv.Version {
				visit(v)
			}
		}
	}
}

func groupList(kinds *kind.Snapshot) *metav1.APIGroupList {
	list := &metav1.APIGroupList{Groups: []metav1.APIGroup{}}
	for _, name := range kinds.Groups() {
		if name != "" {
			list.Groups = append(list.Groups, *apiGroup(kinds, name))
		}
	}
	return list
}

func apiGroup(kinds *kind.Snapshot, name string) *metav1.APIGroup {
	g := &metav1.APIGroup{Name: name}
	for _, version := range kinds.GroupVersions(name) {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + version, Version: version})
	}
	if len(g.Versions) > 0 {
		g.PreferredVersion = g.Versions[0]
	}
	return g
}

// storageVersionHash identifies the version in which objects are stored, as Kubernetes
// computes it. Only equality matters to clients. Kinds that are never stored, and those
// whose storage version is not served, have none.
func storageVersionHash(kinds *kind.Snapshot, v *kind.Version) string {
	stored := v.Kind.Stored().GVK
	if k, ok := kinds.Stored(v.Kind.Storage); ok {
		stored = k.Stored().GVK // Events of both groups are stored as those of the core group
	}
	if v.Kind.Ephemeral || v.Kind.Source != nil || v.Kind.StoredAs != "" && v.Kind.StoredAs != stored.Version {
		return ""
	}
	sum := sha256.Sum256([]byte(stored.Group + "/" + stored.Version + "/" + stored.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// group returns nil, not a typed nil, if there is no such group.
func group(kinds *kind.Snapshot, name string) runtime.Object {
	if g := apiGroup(kinds, name); name != "" && len(g.Versions) > 0 {
		g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		return g
	}
	return nil
}

func resourceList(kinds *kind.Snapshot, gv schema.GroupVersion, keeps Keeps) runtime.Object {
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String(), APIResources: []metav1.APIResource{},
	}
	eachResource(kinds, gv, func(v *kind.Version) {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: v.Kind.Plural, SingularName: v.Kind.Singular, Namespaced: v.Kind.Namespaced, Kind: v.GVK.Kind,
			Verbs: keeps.verbs(v.Kind), ShortNames: v.Kind.ShortNames, Categories: v.Kind.Categories, StorageVersionHash: storageVersionHash(kinds, v),
		})
		for _, part := range subresourcesOf(v) {
			r := metav1.APIResource{Name: v.Kind.Plural + "/" + part.name, Namespaced: v.Kind.Namespaced, Kind: part.gvk.Kind, Verbs: part.verbs}
			if part.gvk.GroupVersion() != v.GVK.GroupVersion() {
				r.Group, r.Version = part.gvk.Group, part.gvk.Version
			}
			list.APIResources = append(list.APIResources, r)
		}
	})
	if len(list.APIResources) == 0 {
		return nil
	}
	return list
}
