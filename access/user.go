package access

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
func UserKind() (*kind.Kind, error) {
	k, err := custom.BuiltIn(userYAML)
	if err != nil {
		return nil, err
	}
	k.Restored, k.Reborn = restoredUser, true
	return k, nil
}

// restoredUser leaves the tokens out, which the deletion of the User revoked, unless keep
// says that they are wanted.
func restoredUser(obj runtime.Object, keep bool) (warnings []string) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	var names []string
	tokens, _, _ := unstructured.NestedSlice(u.Object, "spec", "tokens")
	for _, t := range tokens {
		token, _ := t.(map[string]any)
		name, _ := token["name"].(string)
		names = append(names, strconv.Quote(name))
	}
	switch all := strings.Join(names, ", "); {
	case len(tokens) == 0:
		return nil
	case keep:
		return []string{"its old tokens are valid again: " + all}
	default:
		unstructured.RemoveNestedField(u.Object, "spec", "tokens")
		return []string{"its tokens are left out, because the deletion revoked them: " + all + "; give it a new one, or ask for the old ones with keepTokens"}
	}
}

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
