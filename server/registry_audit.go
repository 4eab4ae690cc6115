package server

import (
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/registry"
	registryv1 "github.com/exeunt/exeunt/registry/v1"
)

// record counts and logs a request to the registry, and writes its audit events.
func (s *registryServer) record(client registry.Client, to registry.Request, next http.Handler) http.Handler {
	return s.metrics.observed(client, to, s.audited(client, to, next))
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
