package access

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	jwtaccount "github.com/exeunt/exeunt/access/serviceaccount"
	"github.com/exeunt/exeunt/access/v1"
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

// Remember returns a user as a session keeps it: a User of this server with a mark, so
// that Current finds it.
func (d *Door) Remember(u user.Info) user.Info {
	found := d.directory.User(u.GetName())
	if found == nil || string(found.UID) != u.GetUID() {
		return u
	}
	return &user.DefaultInfo{Name: u.GetName(), UID: UserUIDPrefix + u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
}

// Current returns the user of a session as it is now, or false if it was removed: a User
// with the groups that it has now, a ServiceAccount while it exists. Of others the server
// knows no more than what they signed in with.
func (d *Door) Current(u user.Info) (user.Info, bool) {
	if namespace, name, err := serviceaccount.SplitUsername(u.GetName()); err == nil {
		return u, string(d.directory.Account(namespace, name)) == u.GetUID() && u.GetUID() != ""
	}
	response, ok, err := certificates{d.directory}.current(&authenticator.Response{User: u})
	if err != nil || !ok {
		return nil, false
	}
	return response.User, true
}

// Expires returns when a token that was authenticated ends; zero: never, or not known. A
// session that began with it must not last longer.
func (d *Door) Expires(token string) time.Time {
	if found, expires := d.directory.UserByToken(v1.Hash(token)); found != nil {
		return expires
	}
	return jwtaccount.Expires(token)
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
