package access

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
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
func (c *Control) checkUser(ctx context.Context, w Write) error {
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
			if err := c.need(ctx, a, "cannot give tokens of a user that you cannot impersonate"); err != nil {
				return err
			}
		}
	}
	return nil
}

// Credential returns what UserByCredential knows a User's token by, and when the token
// ends (zero means never); "" if it is not a User's.
func (c *Control) Credential(token string) (string, time.Time) {
	hash := v1.Hash(token)
	found, expires := c.directory.UserByToken(hash)
	if found == nil {
		return "", time.Time{}
	}
	return hash, expires
}

// UserByCredential returns the User as it is now, or false if the User or its token is
// gone.
func (c *Control) UserByCredential(credential string) (user.Info, bool) {
	found, expires := c.directory.UserByToken(credential)
	if found == nil || !expires.IsZero() && time.Now().After(expires) {
		return nil, false
	}
	groups := append(append([]string{}, found.Spec.Groups...), user.AllAuthenticated)
	return &user.DefaultInfo{Name: found.Name, UID: string(found.UID), Groups: groups}, true
}

// impersonation is the prefix of the impersonation headers.
const impersonation = "Impersonate-"

// Impersonates reports whether a request acts as another user. Unknown is the name of a
// header that Kubernetes ignores, because it does not know it or because it is empty:
// a client that sends one does not want to act as itself, so the request must be
// refused.
func Impersonates(h http.Header) (impersonates bool, unknown string) {
	for name, values := range h {
		if !strings.HasPrefix(name, impersonation) {
			continue
		}
		impersonates = true
		switch {
		case len(values) == 0 || values[0] == "":
			unknown = name
		case name == authenticationv1.ImpersonateUserHeader, name == authenticationv1.ImpersonateGroupHeader, name == authenticationv1.ImpersonateUIDHeader:
		case strings.HasPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix):
		default:
			unknown = name
		}
	}
	return impersonates, unknown
}

// serverKey is the context key of requests that the server makes to itself.
type serverKey struct{}

// AsServer marks the connections over which the server uses its own API. Only code of
// this process can call it, so no client can send the mark.
func AsServer(ctx context.Context) context.Context {
	return context.WithValue(ctx, serverKey{}, true)
}

// serverUser is the server as its own client: Kubernetes' name for it.
var serverUser = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// tokenFile authenticates by a file of hashed tokens. Each line is
// sha256:HEX,USER,UID,"GROUP,GROUP" as in Kubernetes' token file, with the hash in the
// place of the token. The file is read again within a second of a change; if it cannot
// be read then, the tokens that were read last stay valid and the log says why.
type tokenFile struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	users   map[string]*user.DefaultInfo // guarded by mu; by hash
	read    []byte                       // guarded by mu
	checked time.Time                    // guarded by mu
}

func openTokenFile(path string, log *slog.Logger) (*tokenFile, error) {
	f := &tokenFile{path: path, log: log}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--token-auth-file: %w", err)
	}
	if f.users, err = parseTokens(data); err != nil {
		return nil, fmt.Errorf("--token-auth-file %s: %w", path, err)
	}
	f.read, f.checked = data, time.Now()
	return f, nil
}

func (f *tokenFile) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) > time.Second {
		f.reload()
	}
	if u := f.users[v1.Hash(token)]; u != nil {
		return &authenticator.Response{User: u}, true, nil
	}
	return nil, false, nil
}

// reload reads the file again. The caller holds f.mu.
func (f *tokenFile) reload() {
	f.checked = time.Now()
	data, err := os.ReadFile(f.path)
	if err == nil && bytes.Equal(data, f.read) {
		return
	}
	var users map[string]*user.DefaultInfo
	if err == nil {
		users, err = parseTokens(data)
	}
	if err != nil {
		f.log.Error("the file of tokens cannot be read; its last content stays valid", "file", f.path, "error", err)
		return
	}
	f.users, f.read = users, data
}

// parseTokens reads the lines. An error never shows a token.
func parseTokens(data []byte) (map[string]*user.DefaultInfo, error) {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord, r.Comment = -1, '#'
	records, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("line %d is not CSV", 1+bytes.Count(data[:min(int64(len(data)), r.InputOffset())], []byte("\n")))
	}
	users := map[string]*user.DefaultInfo{}
	for i, record := range records {
		if len(record) < 3 || len(record) > 4 || record[1] == "" {
			return nil, fmt.Errorf(`entry %d: want sha256:HEX,USER,UID,"GROUP,GROUP"`, i+1)
		}
		hash, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(record[0])), "sha256:")
		if raw, err := hex.DecodeString(hash); !ok || err != nil || len(raw) != 32 {
			return nil, fmt.Errorf("entry %d: the token must be hashed: sha256: and the hash in hexadecimal, as printf %%s TOKEN | sha256sum prints it", i+1)
		}
		if users[hash] != nil {
			return nil, fmt.Errorf("entry %d: the token of another entry", i+1)
		}
		u := &user.DefaultInfo{Name: record[1], UID: record[2]}
		if len(record) == 4 && record[3] != "" {
			for _, group := range strings.Split(record[3], ",") {
				u.Groups = append(u.Groups, strings.TrimSpace(group))
			}
		}
		users[hash] = u
	}
	return users, nil
}
