package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Client is the client of a request, and what it may do. A nil Client may do nothing.
type Client interface {
	// Known reports whether the client has logged in.
	Known() bool
	// May returns why the client may not use a verb of the API on the Repository of a
	// path, or nil. The empty path is all repositories. An *Error is sent as it is,
	// others are a denial.
	May(verb, repository string) error
	// Sees reports whether the catalog shows a repository to the client.
	Sees(repository string) bool
}

// anyone may do everything: it is the client of a registry that admits all.
type anyone struct{}

func (anyone) Known() bool              { return true }
func (anyone) May(string, string) error { return nil }
func (anyone) Sees(string) bool         { return true }

// right is what a kind of request needs on its repository: one of the verbs of the API.
// actions are those that the client asks for in a token.
type right struct {
	verbs   []string
	actions string
}

var (
	toList   = right{[]string{"list"}, "*"}
	toPull   = right{[]string{"get"}, "pull"}
	toPush   = right{[]string{"update", "create"}, "pull,push"}
	toDelete = right{[]string{"delete"}, "delete"}
)

// rights is the right of each kind of request: who may get the object Repository pulls,
// who may update or create it pushes. Ping needs a login and no right.
var rights = map[Kind]right{
	Catalog: toList,
	TagList: toPull, Referrers: toPull, BlobGet: toPull, BlobHead: toPull, ManifestGet: toPull, ManifestHead: toPull,
	UploadStart: toPush, UploadStatus: toPush, UploadPatch: toPush, UploadPut: toPush, UploadCancel: toPush, ManifestPut: toPush,
	BlobDelete: toDelete, ManifestDelete: toDelete,
}

// scope is what a client needs in its token for a request, for the challenge.
func scope(to Request, from string) string {
	needs := rights[to.Kind].actions
	switch {
	case needs == "":
		return ""
	case to.Kind == Catalog:
		return "registry:catalog:" + needs
	case to.Kind == UploadStart && from != "" && checkName(from) == nil:
		return "repository:" + to.Repository + ":" + needs + " repository:" + from + ":pull"
	}
	return "repository:" + to.Repository + ":" + needs
}

var errLogin = errorf(Unauthorized, "log in: any user name, and a token as the password")

// permit refuses what the client may not do. A mount needs get on the repository that it
// mounts from, or on all if it names none; without that right it is an ordinary upload,
// so that the answer does not tell whether the blob exists there. A token that lacks the
// scope of the source is refused with a challenge, as docker expects. No scope names all
// repositories, so there the roles decide alone.
func permit(client Client, req *http.Request, to Request) (*http.Request, error) {
	if client == nil {
		return nil, errorf(Denied, "the registry does not know who asks")
	}
	if to.Kind == Ping {
		if !client.Known() {
			return nil, errLogin
		}
		return req, nil
	}
	if err := mayOne(client, rights[to.Kind].verbs, to.Repository); err != nil {
		return nil, err
	}
	if to.Kind != UploadStart {
		return req, nil
	}
	query := req.URL.Query()
	if !query.Has("mount") {
		return req, nil
	}
	from := query.Get("from")
	denied := client.May("get", from)
	var refused *Error
	lacksScope := errors.As(denied, &refused) && refused.Reason != "" // roles allow it, the token does not
	switch {
	case denied == nil, lacksScope && from == "":
		return req, nil
	case lacksScope && checkName(from) == nil:
		return nil, denied
	}
	query.Del("mount")
	query.Del("from")
	plain := req.Clone(req.Context())
	plain.URL.RawQuery = query.Encode()
	return plain, nil
}

// permitted asks again, after a body that may have taken hours, for the right of a request.
func (to Request) permitted() error {
	return mayOne(to.client, rights[to.Kind].verbs, to.Repository)
}

// mayOne returns nil if the client may use one of the verbs. A client that is not known
// is told to log in. Of several refusals mayOne returns the one that a login, or another
// token, would overcome.
func mayOne(client Client, verbs []string, repository string) error {
	var refusal *Error
	for _, verb := range verbs {
		err := client.May(verb, repository)
		if err == nil {
			return nil
		}
		var refused *Error
		switch {
		case errors.As(err, &refused):
		case !client.Known():
			refused = errLogin
		default:
			refused = errorf(Denied, "%v", err)
		}
		if refusal == nil || refused.Code == Unauthorized {
			refusal = refused
		}
	}
	if refusal == nil {
		return errorf(Denied, "no client may do this")
	}
	return refusal
}

// Quotas limit what clients can store. 0 means no limit.
type Quotas struct {
	// BlobBytes is the size of a blob.
	BlobBytes int64
	// Uploads is the number of uploads under way, and NamespaceUploads the number in one
	// namespace, on all replicas together. Uploads that begin at the same moment may
	// exceed a limit by their number.
	Uploads, NamespaceUploads int64
}

// checkLength refuses a body that is announced to be larger than a blob may be.
func (q Quotas) checkLength(k Kind, req *http.Request) error {
	if !k.carriesBlob() || q.BlobBytes == 0 {
		return nil
	}
	return q.checkSize(req.ContentLength)
}

func (q Quotas) checkSize(size int64) error {
	if q.BlobBytes > 0 && size > q.BlobBytes {
		return errorf(Denied, "a blob of this registry has at most %d bytes", q.BlobBytes)
	}
	return nil
}

// SetQuotas replaces the quotas while the registry serves. What is stored already stays.
func (r *Registry) SetQuotas(q Quotas) { r.quotas.Store(&q) }

// checkUploads refuses an upload if as many are under way as may be, and reports whether there
// is such a limit.
func (r *Registry) checkUploads(ctx context.Context, repository string) (limited bool, err error) {
	quotas := r.quotas.Load()
	if quotas.Uploads == 0 && quotas.NamespaceUploads == 0 {
		return false, nil
	}
	namespace := topLevel(repository)
	var all, here int64
	if _, err := r.db.Row(ctx, countUploads, []any{namespace}, &all, &here); err != nil {
		return true, fmt.Errorf("count uploads: %w", err)
	}
	if limit := quotas.Uploads; limit > 0 && all >= limit {
		return true, errorf(TooManyRequests, "%d uploads are under way, as many as this registry allows; finish or cancel them, or try again later", all)
	}
	if limit := quotas.NamespaceUploads; limit > 0 && here >= limit {
		return true, errorf(TooManyRequests, "%d uploads are under way in namespace %s, as many as this registry allows; finish or cancel them, or try again later", here, namespace)
	}
	return true, nil
}
