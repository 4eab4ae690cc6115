package api

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/exeunt/exeunt/api/discovery"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
)

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
	if root && discovery.WantsAggregated(req) {
		a.serveAggregated(w, req, kinds, parts[0] == "api")
		return
	}
	doc := discovery.Document(kinds, parts, req.Host)
	if doc == nil {
		a.failNoKind(w, req, parts[0] == "apis" && !hasBuiltIn(kinds, parts[1]))
		return
	}
	responsewriters.WriteObjectNegotiated(builtin.Codecs(), negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, req, http.StatusOK, doc, false)
}

func (a *API) serveAggregated(w http.ResponseWriter, req *http.Request, kinds *kind.Snapshot, core bool) {
	doc, err := a.discovery.Get(kinds, core)
	if err != nil {
		a.log.Error("discovery failed", "error", err)
		http.Error(w, "discovery failed; the server's log says why", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", discovery.AggregatedType)
	h.Set("ETag", doc.ETag)
	h.Set("Cache-Control", "public")
	if strings.Contains(req.Header.Get("If-None-Match"), doc.ETag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(doc.Body)
}
