package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/console"
)

// withConsole serves the console beside the API, on the same address: so the page
// reaches the API without a second origin.
func (f *frontend) withConsole(api http.Handler) http.Handler {
	var images http.Handler
	if f.images != nil {
		images = f.images.images
	}
	page := console.New(console.Config{
		API: api, Registry: images, Sessions: f.sessions, OIDC: f.browsers, Throttle: f.door.Throttle(), Logger: f.config.Logger,
		Token: func(ctx context.Context, token string) (user.Info, time.Time, bool, error) {
			response, ok, err := f.door.AuthenticateToken(ctx, token)
			if err != nil || !ok {
				return nil, time.Time{}, false, err
			}
			return response.User, f.door.Expires(token), true, nil
		},
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == strings.TrimSuffix(console.Path, "/") || strings.HasPrefix(req.URL.Path, console.Path) {
			page.ServeHTTP(w, req)
			return
		}
		api.ServeHTTP(w, req)
	})
}
