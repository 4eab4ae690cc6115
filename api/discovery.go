package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"

	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

var subresourceVerbs = metav1.Verbs{"get", "patch", "update"}

// serveDiscovery lists the served kinds: all in one document for clients that
// ask for the aggregated form, one document per group for the others.
func (a *API) serveDiscovery(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "discovery is read with GET", http.StatusMethodNotAllowed)
		return
	}
	if err := checkAccept(req, false); err != nil {
		a.fail(w, req, err)
		return
	}
	kinds := a.kinds.Snapshot()
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	root := len(parts) == 1
	w.Header().Set("Vary", "Accept")
	if root && wantsAggregated(req) {
		a.serveAggregated(w, req, kinds, parts[0] == "api")
		return
	}
	var doc runtime.Object
	switch {
	case root && parts[0] == "api":
		doc = &metav1.APIVersions{Versions: kinds.GroupVersions(""), ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: req.Host}}}
	case root:
		doc = groupList(kinds)
	case parts[0] == "api" && len(parts) == 2:
		doc = resourceList(kinds, schema.GroupVersion{Version: parts[1]})
	case parts[0] == "apis" && len(parts) == 2:
		doc = group(kinds, parts[1])
	case parts[0] == "apis" && len(parts) == 3:
		doc = resourceList(kinds, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	if doc == nil {
		a.failNoKind(w, req, parts[0] == "apis" && !hasBuiltIn(kinds, parts[1]))
		return
	}
	responsewriters.WriteObjectNegotiated(builtin.Codecs(), negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, req, http.StatusOK, doc, false)
}

// wantsAggregated says whether the client prefers the aggregated form. Such
// clients list it before the plain form.
func wantsAggregated(req *http.Request) bool {
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

// discoveryCache keeps the aggregated documents of one snapshot of the kinds.
type discoveryCache struct {
	mu    sync.Mutex
	kinds *kind.Snapshot
	docs  map[bool]document // true: core group
}

type document struct {
	body []byte
	etag string
}

func (a *API) serveAggregated(w http.ResponseWriter, req *http.Request, kinds *kind.Snapshot, core bool) {
	doc, err := a.discovery.get(kinds, core)
	if err != nil {
		a.log.Error("discovery failed", "error", err)
		http.Error(w, "discovery failed; the server's log says why", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", aggregatedType)
	h.Set("ETag", doc.etag)
	h.Set("Cache-Control", "public")
	if strings.Contains(req.Header.Get("If-None-Match"), doc.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(doc.body)
}

func (c *discoveryCache) get(kinds *kind.Snapshot, core bool) (document, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds != kinds {
		c.kinds, c.docs = kinds, map[bool]document{}
	}
	if doc, ok := c.docs[core]; ok {
		return doc, nil
	}
	body, err := json.Marshal(aggregated(kinds, core))
	if err != nil {
		return document{}, err
	}
	sum := sha256.Sum256(body)
	doc := document{body, `"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"`}
	c.docs[core] = doc
	return doc, nil
}

func aggregated(kinds *kind.Snapshot, core bool) *apidiscoveryv2.APIGroupDiscoveryList {
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
				Resources: aggregatedResources(kinds, schema.GroupVersion{Group: name, Version: version}),
			})
		}
		list.Items = append(list.Items, item)
	}
	return list
}

func aggregatedResources(kinds *kind.Snapshot, gv schema.GroupVersion) []apidiscoveryv2.APIResourceDiscovery {
	var out []apidiscoveryv2.APIResourceDiscovery
	eachResource(kinds, gv, func(v *kind.Version) {
		scope := apidiscoveryv2.ScopeCluster
		if v.Kind.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		r := apidiscoveryv2.APIResourceDiscovery{
			Resource: v.Kind.Plural, SingularResource: v.Kind.Singular, Scope: scope, Verbs: v.Kind.Verbs(),
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
	if isPod(v) {
		parts = append(parts,
			subresourceInfo{"binding", bindingKind, metav1.Verbs{"create"}},
			subresourceInfo{"ephemeralcontainers", v.GVK, subresourceVerbs},
			subresourceInfo{"eviction", evictionKind, metav1.Verbs{"create"}},
			subresourceInfo{"resize", v.GVK, subresourceVerbs})
	}
	if isSigningRequest(v) {
		parts = append(parts, subresourceInfo{"approval", v.GVK, subresourceVerbs})
	}
	if v.Kind.IsNamespace() {
		parts = append(parts, subresourceInfo{"finalize", v.GVK, metav1.Verbs{"update"}})
	}
	if v.Scale != nil {
		parts = append(parts, subresourceInfo{"scale", scaleKind, subresourceVerbs})
	}
	if v.Status != nil {
		parts = append(parts, subresourceInfo{"status", v.GVK, subresourceVerbs})
	}
	if isServiceAccount(v) {
		parts = append(parts, subresourceInfo{"token", tokenKind, metav1.Verbs{"create"}})
	}
	return parts
}

func eachResource(kinds *kind.Snapshot, gv schema.GroupVersion, visit func(*kind.Version)) {
	for _, k := range kinds.Kinds {
		if k.Group != gv.Group {
			continue
		}
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

func resourceList(kinds *kind.Snapshot, gv schema.GroupVersion) runtime.Object {
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String(), APIResources: []metav1.APIResource{},
	}
	eachResource(kinds, gv, func(v *kind.Version) {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: v.Kind.Plural, SingularName: v.Kind.Singular, Namespaced: v.Kind.Namespaced, Kind: v.GVK.Kind,
			Verbs: v.Kind.Verbs(), ShortNames: v.Kind.ShortNames, Categories: v.Kind.Categories, StorageVersionHash: storageVersionHash(kinds, v),
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
