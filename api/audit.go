package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/filters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// The library's filter writes the audit events. Its handlers add the bodies; the fast
// paths serve a request only if no body is recorded (recordsBodies). So both paths
// write the same events.

// The annotations of a recorded deletion. Removed counts the objects that the request
// removed itself, marked those that it marked for deletion. What the collector removes
// later has the cascade's id in the archive.
const (
	cascadeAnnotation = "lifecycle.exeunt.dev/cascade"
	policyAnnotation  = "lifecycle.exeunt.dev/policy"
	removedAnnotation = "lifecycle.exeunt.dev/removed"
	markedAnnotation  = "lifecycle.exeunt.dev/marked"
)

// The annotations of a recorded update: what it releases, which finalizers of a DELETING
// object it removes, and which settings of a Namespace it changes.
const (
	releasedAnnotation   = "lifecycle.exeunt.dev/released"
	finalizersAnnotation = "lifecycle.exeunt.dev/finalizers-removed"
	settingsAnnotation   = "lifecycle.exeunt.dev/settings-changed"
)

// withAudit puts the Audit-Id into the context. Without an audit log only the requests
// that need it pay for it: deletes, which store it, and patches, because the library's
// patch handler requires an audit context.
func (a *API) withAudit(ctx context.Context, info *genericrequest.RequestInfo, id string) context.Context {
	if a.audit == nil && info.Verb != "patch" && info.Verb != "delete" && info.Verb != "deletecollection" {
		return ctx
	}
	ctx = audit.WithAuditContext(ctx)
	audit.WithAuditID(ctx, types.UID(id))
	if a.audit != nil {
		ctx = genericrequest.WithReceivedTimestamp(ctx, a.now())
	}
	return ctx
}

// requestID returns the Audit-Id of a delete, for the archive.
func requestID(ctx context.Context) string {
	id, _ := audit.AuditIDFrom(ctx)
	return string(id)
}

// recorded writes audit events for the requests that next serves.
func (a *API) recorded(next http.Handler) http.Handler {
	if a.audit == nil || next == nil {
		return next
	}
	flushes := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(flushing{w}, req)
	})
	byPolicy := filters.WithAudit(flushes, a.audit.Sink(), a.audit.Policy(), func(_ *http.Request, info *genericrequest.RequestInfo) bool {
		return info != nil && info.Verb == "watch"
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if attributes, err := filters.GetAuthorizerAttributes(req.Context()); err == nil {
			if sink, policy := a.audit.ByContent(attributes); sink != nil {
				filters.WithAudit(flushes, sink, policy, nil).ServeHTTP(w, req)
				return
			}
		}
		byPolicy.ServeHTTP(w, req)
	})
}

// recordWrite adds what a write means for deletions to the event.
func (a *API) recordWrite(ctx context.Context, w *access.Write) {
	if a.audit == nil || w.OldMeta == nil {
		return
	}
	now := w.Meta.GetAnnotations()
	if w.Confirms {
		audit.AddAuditAnnotation(ctx, releasedAnnotation, cmp.Or(now[lifecycle.ConfirmCascade], "the guard's finalizer"))
	}
	if before := w.OldMeta.GetAnnotations(); isNamespace(w.Resource) {
		var changed []string
		for _, name := range lifecycle.NamespaceSettings {
			if before[name] != now[name] {
				changed = append(changed, fmt.Sprintf("%s from %q to %q", strings.TrimPrefix(name, auditlog.DeletionPrefix), before[name], now[name]))
			}
		}
		if len(changed) > 0 {
			audit.AddAuditAnnotation(ctx, settingsAnnotation, strings.Join(changed, ", "))
		}
	}
	if w.OldMeta.GetDeletionTimestamp() == nil {
		return
	}
	removed := slices.DeleteFunc(slices.Clone(w.OldMeta.GetFinalizers()), func(f string) bool { return slices.Contains(w.Meta.GetFinalizers(), f) })
	if len(removed) > 0 {
		audit.AddAuditAnnotation(ctx, finalizersAnnotation, strings.Join(removed, ", "))
	}
}

func isNamespace(r schema.GroupVersionResource) bool {
	return r.Group == "" && r.Resource == object.Namespaces
}

// flushing adds Flush to the library's writer, which has none.
type flushing struct{ http.ResponseWriter }

func (w flushing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w flushing) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

// Flush implements what the library's watch handler looks for.
func (w flushing) Flush() { _ = w.FlushError() }

// recordedRefusal is recorded for requests without valid credentials.
func (a *API) recordedRefusal(refuse http.Handler) http.Handler {
	if a.audit == nil {
		return refuse
	}
	return filters.WithFailedAuthenticationAudit(refuse, a.audit.Sink(), a.audit.Policy())
}

// recordDecision adds the authorizer's decision to the event.
func (a *API) recordDecision(ctx context.Context, allowed bool, reason string, err error) {
	if a.audit == nil {
		return
	}
	decision := "forbid"
	switch {
	case allowed:
		decision = "allow"
	case err != nil:
		reason = "internal error"
	}
	audit.AddAuditAnnotations(ctx, "authorization.k8s.io/decision", decision, "authorization.k8s.io/reason", reason)
}

// recordsBodies says whether the event needs a body that the fast paths do not add.
func (a *API) recordsBodies(ctx context.Context, info *genericrequest.RequestInfo) bool {
	if a.audit == nil || info.Verb == "watch" { // events of a watch are not recorded
		return false
	}
	level := audit.AuditContextFrom(ctx).GetEventLevel()
	if info.Verb == "get" || info.Verb == "list" {
		return level.GreaterOrEqual(auditinternal.LevelRequestResponse)
	}
	return level.GreaterOrEqual(auditinternal.LevelRequest)
}

// recordObject adds the name, uid and version of the object that the client sent to the
// event, as the library's handlers do.
func (r *resource) recordObject(ctx context.Context, obj runtime.Object) {
	if r.api.audit != nil {
		audit.LogRequestObject(ctx, obj, r.v.GVK.GroupVersion(), r.v.Resource(), "", r.v.Wire.Serializer)
	}
}

// deletions counts what one request deleted.
type deletions struct {
	policy          metav1.DeletionPropagation
	removed, marked int
}

func (d *deletions) add(result store.DeleteResult, options *metav1.DeleteOptions) {
	d.policy = cmp.Or(d.policy, result.Policy)
	switch {
	case options != nil && dryrun.IsDryRun(options.DryRun):
	case result.Outcome == lifecycle.Remove:
		d.removed++
	case result.Outcome == lifecycle.Mark:
		d.marked++
	}
}

// recordDeletion adds the deletion of one object to the event. The cascade of an object
// that was being deleted already is the one of its first delete.
func (r *resource) recordDeletion(ctx context.Context, result store.DeleteResult, options *metav1.DeleteOptions) {
	if r.api.audit == nil {
		return
	}
	cascade := string(result.Object.UID)
	if result.Again {
		origin, err := r.api.store.OriginOf(ctx, result.Object.UID)
		if err != nil {
			r.api.log.Warn("the audit event of a delete has no cascade", "object", result.Object.Key.String(), "error", err)
		}
		cascade = cmp.Or(origin.Cascade, cascade)
	}
	var d deletions
	d.add(result, options)
	r.recordDeletions(ctx, cascade, d)
}

// recordDeletions adds the deletions of one cascade to the event.
func (r *resource) recordDeletions(ctx context.Context, cascade string, d deletions) {
	if r.api.audit == nil {
		return
	}
	audit.AddAuditAnnotations(ctx, cascadeAnnotation, cascade,
		policyAnnotation, string(cmp.Or(d.policy, metav1.DeletePropagationBackground)),
		removedAnnotation, strconv.Itoa(d.removed), markedAnnotation, strconv.Itoa(d.marked))
}
