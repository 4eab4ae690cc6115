package server

import (
	"net/http"
	"strings"

	"github.com/exeunt/exeunt/console"
)

// withConsole serves the console beside the API, on the same address: so the page
// reaches the API without a second origin.
func (s *server) withConsole() http.Handler {
	var images http.Handler
	if s.images != nil {
		images = s.images.images
	}
	page := console.New(console.Config{
		API: s.api, Registry: images, Limited: s.api.Limited, Sessions: s.sessions, OIDC: s.browsers, Throttle: s.door.Throttle(), Logger: s.config.Logger,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == strings.TrimSuffix(console.Path, "/") || strings.HasPrefix(req.URL.Path, console.Path) {
			page.ServeHTTP(w, req)
			return
		}
		if req.URL.Path == console.LinkPath {
			req = console.WithCredential(req)
		}
		s.api.ServeHTTP(w, req)
	})
}
