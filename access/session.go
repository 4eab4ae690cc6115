package access

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

type clientKey struct{}

// WithClient returns a context whose request is of a client that this process has
// identified by other means: a session of the console.
func WithClient(ctx context.Context, client user.Info) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// ClientFrom returns the client of WithClient.
func ClientFrom(ctx context.Context) (user.Info, bool) {
	client, ok := ctx.Value(clientKey{}).(user.Info)
	return client, ok
}

// sessions authenticates by WithClient. A request from outside cannot have it.
type sessions struct{}

func (sessions) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	client, ok := ClientFrom(req.Context())
	if !ok {
		return nil, false, nil
	}
	return &authenticator.Response{User: client}, true, nil
}
