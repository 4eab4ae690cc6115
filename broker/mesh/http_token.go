package mesh

import (
	"net/http"
	"time"

	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
)

// TokenHandler serves v1alpha1.TokensPath: bootstrap tokens, for people. The
// server has authorized the client before.
func (m *Mesh) TokenHandler() http.Handler {
	mux := http.NewServeMux()
	serve := func(pattern string, answer func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) { m.answer(w, req, answer) })
	}
	serve("POST "+v1alpha1.TokensPath, m.serveMint)
	serve("GET "+v1alpha1.TokensPath, func(req *http.Request) (any, error) {
		return m.Tokens(req.Context(), req.URL.Query().Get("project"))
	})
	serve("DELETE "+v1alpha1.TokensPath+"/{id}", func(req *http.Request) (any, error) {
		return m.Revoke(req.Context(), req.PathValue("id"))
	})
	mux.HandleFunc("/", m.notFound)
	return mux
}

func (m *Mesh) serveMint(req *http.Request) (any, error) {
	var r v1alpha1.TokenRequest
	if err := read(req, &r); err != nil {
		return nil, err
	}
	actor := ""
	if user, ok := genericrequest.UserFrom(req.Context()); ok {
		actor = user.GetName()
	}
	const most = int64(MaxTTL / time.Second)
	ttl := time.Duration(min(max(r.TTLSeconds, 0), most+1)) * time.Second // no overflow
	return m.Mint(req.Context(), Order{Project: r.Project, TTL: ttl, Actor: actor})
}
