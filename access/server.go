package access

import (
	"context"

	"k8s.io/apiserver/pkg/authentication/user"
)

// serverKey is the context key of requests that the server makes to itself.
type serverKey struct{}

// AsServer marks the connections over which the server uses its own API. Only code of
// this process can call it, so no client can send the mark.
func AsServer(ctx context.Context) context.Context {
	return context.WithValue(ctx, serverKey{}, true)
}

// serverUser is the server as its own client: Kubernetes' name for it.
var serverUser = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
