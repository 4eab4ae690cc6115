package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/registry"
	registryv1 "github.com/exeunt/exeunt/registry/v1"
)

var (
	errUnknownClient = errors.New("the server does not know these credentials; the password is a token (exeunt user add, kubectl create token)")
	errNoCredentials = errors.New("log in: any user name, and a token as the password (exeunt user add, kubectl create token; the file registry-token for a registry on loopback), or use a client certificate")
)

// admit identifies clients of the registry: a session of the console, a client
// certificate, a bearer token, or a token as the password of basic authentication. A
// client without credentials may do nothing, unless the operator opened a registry on
// loopback to every client.
func (s *registryServer) admit(door *access.Door) func(*http.Request) (registry.Client, error) {
	return func(req *http.Request) (registry.Client, error) {
		if _, password, ok := req.BasicAuth(); ok {
			client, known := s.login.client(password)
			if !known {
				response, found, err := door.AuthenticateToken(req.Context(), password)
				if err != nil || !found {
					return nil, errUnknownClient
				}
				client = response.User
			}
			return registryClient{req.Context(), client, door.Authorizer()}, nil
		}
		_, session := access.ClientFrom(req.Context())
		if !session && req.Header.Get("Authorization") == "" && (req.TLS == nil || len(req.TLS.VerifiedChains) == 0) {
			if s.config.RegistryAnonymous {
				return nil, nil
			}
			return nil, errNoCredentials
		}
		client, known := door.Authenticate(req)
		if !known {
			return nil, errUnknownClient
		}
		return registryClient{req.Context(), client, door.Authorizer()}, nil
	}
}

// registryClient decides by roles on repositories.
type registryClient struct {
	ctx   context.Context // of the request, which the client is for
	user  user.Info
	authz authorizer.Authorizer
}

// May implements registry.Client.
func (c registryClient) May(verb, path string) error {
	a := authorizer.AttributesRecord{
		User: c.user, Verb: verb, ResourceRequest: true,
		APIGroup: registryv1.GroupVersion.Group, APIVersion: registryv1.GroupVersion.Version, Resource: registryv1.Plural,
	}
	where := "at the cluster scope"
	if path != "" {
		a.Namespace, a.Name = registryv1.Name(path)
		where = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	decision, _, err := c.authz.Authorize(c.ctx, a)
	if err != nil || decision != authorizer.DecisionAllow {
		return fmt.Errorf("repositories.%s %q is forbidden: User %q cannot %s resource %q in API group %q %s",
			a.APIGroup, a.Name, c.user.GetName(), verb, a.Resource, a.APIGroup, where)
	}
	return nil
}
