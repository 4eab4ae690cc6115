package access

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/exeunt/exeunt/access/directory"
	v1 "github.com/exeunt/exeunt/access/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
)

//go:embed user.yaml
var userYAML []byte

// UserKind makes the kind User.
func UserKind() (*kind.Kind, error) { return custom.BuiltIn(userYAML) }

// userTokens authenticates by the tokens of Users.
type userTokens struct{ directory *directory.Directory }

var errTokenExpired = errors.New("the token has expired")

func (t userTokens) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	found, expires := t.directory.UserByToken(v1.Hash(token))
	if found == nil {
		return nil, false, nil
	}
	if !expires.IsZero() && time.Now().After(expires) {
		return nil, false, errTokenExpired
	}
	return &authenticator.Response{User: infoOf(found)}, true, nil
}

func infoOf(u *v1.User) user.Info {
	return &user.DefaultInfo{Name: u.Name, UID: string(u.UID), Groups: u.Spec.Groups}
}

// checkUser refuses to write a User that the client may not act as: its tokens would
// give the client what impersonation does not.
func (d *Door) checkUser(ctx context.Context, w Write) error {
	if w.Resource.GroupResource() != v1.Users.GroupResource() {
		return nil
	}
	names := map[string][]string{"users": {w.Meta.GetName()}}
	if u, ok := w.Object.(*unstructured.Unstructured); ok {
		names["groups"], _, _ = unstructured.NestedStringSlice(u.Object, "spec", "groups")
	}
	for resource, all := range names {
		for _, name := range all {
			a := authorizer.AttributesRecord{User: w.Client, Verb: "impersonate", APIVersion: "v1", Resource: resource, Name: name, ResourceRequest: true}
			if err := d.need(ctx, a, "cannot give tokens of a user that you cannot impersonate"); err != nil {
				return err
			}
		}
	}
	return nil
}
