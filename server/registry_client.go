package server

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/exeunt/exeunt/access/registrytoken"
	"github.com/exeunt/exeunt/registry"
	registryv1 "github.com/exeunt/exeunt/registry/v1"
)

// registryClient decides by roles on repositories, with every request. A token bounds
// what roles allow.
type registryClient struct {
	ctx       context.Context // of the request, which the client is for
	req       *http.Request   // nil: it only asks for a token
	user      user.Info
	anonymous bool                 // has not logged in
	token     *registrytoken.Token // nil: the client is not bounded by one
	authz     authorizer.Authorizer
	public    func(ctx context.Context, path string) (bool, error)
}

// Known implements registry.Client.
func (c *registryClient) Known() bool { return !c.anonymous }

// actions are the actions of tokens by the verbs that they stand for.
var actions = map[string]string{"get": registrytoken.Pull, "create": registrytoken.Push, "update": registrytoken.Push, "delete": registrytoken.Delete}

// May implements registry.Client. Every client that is logged in may ask for the
// catalog, which shows what it may pull.
func (c *registryClient) May(verb, path string) error {
	catalog := verb == "list" && path == ""
	if !catalog || c.anonymous {
		if err := c.right(verb, path); err != nil {
			return err
		}
	}
	carries := c.token == nil || c.token.Allows("repository", path, actions[verb])
	if catalog {
		carries = c.token == nil || c.token.Allows("registry", "catalog", registrytoken.Any)
	}
	if !carries {
		return &registry.Error{Code: registry.Unauthorized, Reason: "insufficient_scope", Message: "the token does not carry this right: ask for one that does"}
	}
	return nil
}

// Sees implements registry.Client.
func (c *registryClient) Sees(path string) bool { return c.right("get", path) == nil }

// right returns why roles, and the repository itself, do not allow a verb; nil: they do.
func (c *registryClient) right(verb, path string) error {
	denial := c.denial(verb, path)
	if denial == nil || verb != "get" || path == "" {
		return denial
	}
	public, err := c.public(c.ctx, path)
	switch {
	case err != nil: // it may be public: a denial would be final
		return &registry.Error{Code: registry.Unavailable, Message: "cannot read whether the repository is public; try again later"}
	case public:
		return nil
	}
	return denial
}

// denial returns why roles do not allow a verb; nil: they do.
func (c *registryClient) denial(verb, path string) error {
	if c.anonymous {
		return c.login()
	}
	return c.authorize(verb, path)
}

func (c *registryClient) login() *registry.Error {
	e := &registry.Error{Code: registry.Unauthorized, Message: errNoCredentials}
	if c.token != nil {
		e.Reason = "insufficient_scope"
	}
	return e
}

func (c *registryClient) authorize(verb, path string) error {
	a := authorizer.AttributesRecord{
		User: c.user, Verb: verb, ResourceRequest: true,
		APIGroup: registryv1.GroupVersion.Group, APIVersion: registryv1.GroupVersion.Version, Resource: registryv1.Plural,
	}
	if path != "" {
		a.Namespace, a.Name = registryv1.Name(path)
	}
	decision, _, err := c.authz.Authorize(c.ctx, a)
	if err != nil || decision != authorizer.DecisionAllow {
		where := "at the cluster scope"
		if path != "" {
			where = fmt.Sprintf("in the namespace %q", a.Namespace)
		}
		return fmt.Errorf("repositories.%s %q is forbidden: User %q cannot %s resource %q in API group %q %s",
			a.APIGroup, a.Name, c.user.GetName(), verb, a.Resource, a.APIGroup, where)
	}
	return nil
}
