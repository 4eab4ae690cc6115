package server

import (
	"net/http"
	"strings"

	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/console"
)

// withConsole serves the console beside the API, on the same address: so the page
// reaches the API without a second origin.
func (f *frontend) withConsole(api *api.API) http.Handler {
	var images http.Handler
	if f.images != nil {
		images = f.images.images
	}
	page := console.New(console.Config{
		API: api, Registry: images, Limited: api.Limited, Sessions: f.sessions, OIDC: f.browsers, Throttle: f.door.Throttle(), Logger: f.config.Logger,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == strings.TrimSuffix(console.Path, "/") || strings.HasPrefix(req.URL.Path, console.Path) {
			page.ServeHTTP(w, req)
			return
		}
		if req.URL.Path == console.LinkPath {
			req = console.WithCredential(req)
		}
		api.ServeHTTP(w, req)
	})
}
