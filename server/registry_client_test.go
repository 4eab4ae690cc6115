package server

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/exeunt/exeunt/registry"
)

// TestPublicUnknown: a client without rights is not denied while nobody can say whether the
// repository is public: a denial is final, and a client tries again after a 503.
func TestPublicUnknown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the database does not answer
	public := func(ctx context.Context, _ string) (bool, error) { return false, ctx.Err() }
	for name, c := range map[string]*registryClient{
		"anonymous": {ctx: ctx, anonymous: true, public: public},
		"known":     {ctx: ctx, user: &user.DefaultInfo{Name: "a"}, authz: authorizerfactory.NewAlwaysDenyAuthorizer(), public: public},
	} {
		var refused *registry.Error
		if err := c.May("get", "shop/web"); !errors.As(err, &refused) || refused.Code != registry.Unavailable {
			t.Errorf("%s: may pull: %v", name, err)
		}
		if c.Sees("shop/web") {
			t.Errorf("%s sees it in the catalog", name)
		}
		if err := c.May("delete", "shop/web"); err == nil || errors.As(err, &refused) && refused.Code == registry.Unavailable {
			t.Errorf("%s: may delete: %v", name, err)
		}
	}
}
