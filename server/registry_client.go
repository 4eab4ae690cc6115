package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/registrytoken"
	accessv1 "github.com/exeunt/exeunt/access/v1"
	"github.com/exeunt/exeunt/deletion"
	"github.com/exeunt/exeunt/internal/durable"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/importer"
	"github.com/exeunt/exeunt/registry/underway"
	registryv1 "github.com/exeunt/exeunt/registry/v1"
)

// registryClient decides by roles on repositories, with every request. A token bounds
// what roles allow.
type registryClient struct {
	ctx       context.Context // of the request, which the client is for
	req       *http.Request   // nil if it only asks for a token
	user      user.Info
	anonymous bool                 // has not logged in
	token     *registrytoken.Token // nil if the client is not bounded by one
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

// right returns why roles, and the repository itself, do not allow a verb; nil means they do.
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

// denial returns why roles do not allow a verb; nil means they do.
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

// record counts and logs a request to the registry, and writes its audit events.
func (s *registryServer) record(client registry.Client, to registry.Request, next http.Handler) http.Handler {
	handler := s.metrics.observed(client, to, s.audited(client, to, next))
	if to.Kind != registry.Ping || client == nil || !client.Known() {
		return handler
	}
	by := anonymousUser.GetName()
	if known, ok := client.(*registryClient); ok {
		by = known.user.GetName()
	}
	return s.importing(by, handler)
}

// importing keeps what an import says about itself, for the status. A client who logs in can say what it likes about its
// own imports, so that they are only shown.
func (s *registryServer) importing(by string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if said := req.Header.Get(importer.Header); said != "" {
			if err := s.sayImport(req.Context(), by, said); err != nil {
				s.config.Logger.Debug("cannot record how far an import is", "error", err)
			}
		}
		next.ServeHTTP(w, req)
	})
}

func (s *registryServer) sayImport(ctx context.Context, by, said string) error {
	var id string
	var bytes int64
	w := underway.Work{What: "Import into the registry", By: by}
	n, _ := fmt.Sscanf(said, "%36s %d %d %d", &id, &w.Done, &w.Total, &bytes)
	parsed, err := uuid.Parse(id)
	w.ID = parsed.String()
	switch {
	case err != nil || w.Done < 0 || w.Total < w.Done || bytes < 0:
		return fmt.Errorf("%.100q is not what an import says", said)
	case n == 1:
		return w.End(ctx, s.db)
	}
	w.Far = fmt.Sprintf("%d of %d %s, %sB sent", w.Done, w.Total, deletion.Plural(w.Total, "manifest"), registryv1.Size(bytes))
	return w.Say(ctx, s.db)
}

// audited writes audit events for a request to the registry, as the policy says: the
// client, a verb on the Repository, and what of it as the subresource. Deletions are
// recorded always, as the API's are. What the collector removes later has no event: it is
// no request.
func (s *registryServer) audited(client registry.Client, to registry.Request, next http.Handler) http.Handler {
	if s.audit == nil {
		return next
	}
	recorded := filters.WithAudit(next, s.audit.Sink(), s.audit.Policy(), nil)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var by user.Info = anonymousUser
		if known, ok := client.(*registryClient); ok {
			by = known.user
		}
		ctx := audit.WithAuditContext(req.Context())
		audit.WithAuditID(ctx, types.UID(uuid.NewString()))
		ctx = genericrequest.WithReceivedTimestamp(ctx, time.Now())
		ctx = genericrequest.WithUser(ctx, by)
		ctx = genericrequest.WithRequestInfo(ctx, requestInfo(req, to))
		recorded.ServeHTTP(w, req.WithContext(ctx))
	})
}

// recordedAs is the verb and subresource of each kind of request. Others are recorded by
// their path.
var recordedAs = map[registry.Kind][2]string{
	registry.Catalog: {"list", ""}, registry.TagList: {"get", "tags"}, registry.Referrers: {"get", "referrers"},
	registry.BlobGet: {"get", "blobs"}, registry.BlobHead: {"get", "blobs"}, registry.BlobDelete: {"delete", "blobs"},
	registry.UploadStart: {"update", "uploads"}, registry.UploadStatus: {"get", "uploads"}, registry.UploadPatch: {"update", "uploads"},
	registry.UploadPut: {"update", "blobs"}, registry.UploadCancel: {"update", "uploads"},
	registry.ManifestGet: {"get", "manifests"}, registry.ManifestHead: {"get", "manifests"},
	registry.ManifestPut: {"update", "manifests"}, registry.ManifestDelete: {"delete", "manifests"},
}

func requestInfo(req *http.Request, to registry.Request) *genericrequest.RequestInfo {
	info := &genericrequest.RequestInfo{Path: req.URL.Path, Verb: strings.ToLower(req.Method)}
	as, ok := recordedAs[to.Kind]
	if !ok {
		return info
	}
	info.IsResourceRequest, info.Verb, info.Resource, info.Subresource = true, as[0], registryv1.Plural, as[1]
	info.APIGroup, info.APIVersion = registryv1.GroupVersion.Group, registryv1.GroupVersion.Version
	if to.Repository != "" {
		info.Namespace, info.Name = registryv1.Name(to.Repository)
	}
	return info
}

// localLogin is the administrator's login to a registry on loopback, where a client
// certificate cannot be used: a token in a file that only the server's user can read,
// beside the kubeconfig that gives the same rights. Only this server's registry accepts
// it. Nil if there is none.
type localLogin struct {
	file string // absolute, if the system allows
	hash [sha256.Size]byte

	// credential of the holders that have it: localPrefix and a hash of hash.
	credential string
}

const (
	tokenFile = "registry-token" // in the data directory
	localUser = "exeunt-admin"   // as in the administrator's certificate
)

// openLocalLogin reads the token, or creates it. It stays the same over restarts, so that
// clients stay logged in; deleting the file ends it with the next start.
func openLocalLogin(data string) (*localLogin, error) {
	path := filepath.Join(data, tokenFile)
	text, err := os.ReadFile(path)
	token := strings.TrimSpace(string(text))
	if errors.Is(err, fs.ErrNotExist) || err == nil && token == "" {
		token = accessv1.NewToken()
		err = durable.WriteFile(path, []byte(token+"\n"), nil)
	}
	if err != nil {
		return nil, fmt.Errorf("the registry's local login: %w", err)
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	hash := sha256.Sum256([]byte(token))
	again := sha256.Sum256(hash[:])
	return &localLogin{path, hash, localPrefix + hex.EncodeToString(again[:])}, nil
}

// localPrefix begins the credential of holders that have the local login.
const localPrefix = "local:"

// holder returns the administrator if a password is the token.
func (l *localLogin) holder(password string) (registrytoken.Holder, bool) {
	if l == nil {
		return registrytoken.Holder{}, false
	}
	hash := sha256.Sum256([]byte(password))
	if subtle.ConstantTimeCompare(hash[:], l.hash[:]) != 1 {
		return registrytoken.Holder{}, false
	}
	return registrytoken.Holder{Name: localUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}, Credential: l.credential}, true
}

// issued reports whether a holder logged in with the token as it is now.
func (l *localLogin) issued(h registrytoken.Holder) bool {
	return l != nil && h.Credential == l.credential
}

// path returns the file with the token, or "".
func (l *localLogin) path() string {
	if l == nil {
		return ""
	}
	return l.file
}

// registryManager is the manager of the fields of objects that pushes create.
const registryManager = "exeunt-registry"

// creator creates objects for clients of the registry.
type creator struct{ api http.Handler }

// create is repository.Create: a request to the API of this process, as the client, from
// where the client is, and with the audit id of its push.
func (c creator) create(ctx context.Context, by registry.Client, resource string, obj *unstructured.Unstructured) error {
	client, ok := by.(*registryClient)
	if !ok || client.req == nil {
		return errors.New("create an object for a push: the client is not known")
	}
	body, err := obj.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = access.Ask(access.WithClient(ownEvent{ctx}, client.user), c.api, http.MethodPost, kind.ObjectsPath(obj.GroupVersionKind().GroupVersion(), obj.GetNamespace(), resource)+"?fieldManager="+registryManager, body, func(req *http.Request) {
		for _, name := range []string{"User-Agent", "X-Forwarded-For", "X-Real-Ip"} { // what the audit log says of a client
			req.Header[name] = client.req.Header[name]
		}
		req.RemoteAddr = client.req.RemoteAddr
		if id, ok := audit.AuditIDFrom(ctx); ok {
			req.Header.Set("Audit-Id", string(id))
		}
	})
	return err
}

// ownEvent is the context of a push without its audit event: the create has one of its
// own.
type ownEvent struct{ context.Context }

// Value is part of context.Context.
func (c ownEvent) Value(key any) any {
	value := c.Context.Value(key)
	if _, of := value.(*audit.AuditContext); of {
		return nil
	}
	return value
}
