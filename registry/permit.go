package registry

import "net/http"

// Client is the client of a request, and what it may do. A nil Client may do everything.
type Client interface {
	// May returns why the client may not use a verb of the API on the Repository of a
	// path, or nil. The empty path is all repositories.
	May(verb, repository string) error
}

// verbs is the right that each kind of request needs on its repository: who may get the
// object Repository pulls, who may update it pushes. Ping needs none.
var verbs = map[Kind]string{
	Catalog: "list",
	TagList: "get", Referrers: "get", BlobGet: "get", BlobHead: "get", ManifestGet: "get", ManifestHead: "get",
	UploadStart: "update", UploadStatus: "update", UploadPatch: "update", UploadPut: "update", UploadCancel: "update", ManifestPut: "update",
	BlobDelete: "delete", ManifestDelete: "delete",
}

// permit refuses what the client may not do. A mount needs get on the repository that it
// mounts from, or on all if it names none; without that right it is an ordinary upload,
// so that the answer does not tell whether the blob exists there.
func permit(client Client, req *http.Request, to Request) (*http.Request, error) {
	if client == nil || to.Kind == Ping {
		return req, nil
	}
	if err := client.May(verbs[to.Kind], to.Repository); err != nil {
		return nil, errorf(Denied, "%v", err)
	}
	query := req.URL.Query()
	if to.Kind != UploadStart || !query.Has("mount") || client.May("get", query.Get("from")) == nil {
		return req, nil
	}
	query.Del("mount")
	query.Del("from")
	plain := req.Clone(req.Context())
	plain.URL.RawQuery = query.Encode()
	return plain, nil
}
