// Package record adds what a request means to its audit event: the decision of the authorizer,
// what it deletes, what it releases. It does not write the events (access/auditlog).
package record

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/filters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// The library's filter writes the audit events. Its handlers add the bodies; the fast
// paths serve a request only if no body is recorded (Recorder.NeedsBodies). So both paths
// write the same events.

// The annotations of a recorded deletion. Removed counts the objects that the request
// removed itself, marked those that it marked for deletion. What the collector removes
// later has the cascade's id in the archive.
const (
	CascadeAnnotation = "lifecycle.exeunt.dev/cascade"
	PolicyAnnotation  = "lifecycle.exeunt.dev/policy"
	RemovedAnnotation = "lifecycle.exeunt.dev/removed"
	MarkedAnnotation  = "lifecycle.exeunt.dev/marked"
)

// The annotations of a recorded update: what it releases, which finalizers of a DELETING
// object it removes, and which settings of a Namespace it changes.
const (
	ReleasedAnnotation   = "lifecycle.exeunt.dev/released"
	FinalizersAnnotation = "lifecycle.exeunt.dev/finalizers-removed"
	SettingsAnnotation   = "lifecycle.exeunt.dev/settings-changed"
)

// Recorder adds to the audit events of an API. The zero value records nothing.
type Recorder struct {
	Log *auditlog.Log
}

// Context puts the Audit-Id into the context. Without an audit log only the requests
// that need it pay for it: deletes, which store it, and patches, because the library's
// patch handler requires an audit context.
func (r Recorder) Context(ctx context.Context, info *genericrequest.RequestInfo, id string, now time.Time) context.Context {
	if r.Log == nil && info.Verb != "patch" && info.Verb != "delete" && info.Verb != "deletecollection" {
		return ctx
	}
	ctx = audit.WithAuditContext(ctx)
	audit.WithAuditID(ctx, types.UID(id))
	if r.Log != nil {
		ctx = genericrequest.WithReceivedTimestamp(ctx, now)
	}
	return ctx
}

// RequestID returns the Audit-Id of a delete, for the archive.
func RequestID(ctx context.Context) string {
	id, _ := audit.AuditIDFrom(ctx)
	return string(id)
}

// Handler writes audit events for the requests that next serves.
func (r Recorder) Handler(next http.Handler) http.Handler {
	if r.Log == nil || next == nil {
		return next
	}
	flushes := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(Flushing{w}, req)
	})
	byPolicy := filters.WithAudit(flushes, r.Log.Sink(), r.Log.Policy(), func(_ *http.Request, info *genericrequest.RequestInfo) bool {
		return info != nil && info.Verb == "watch"
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if attributes, err := filters.GetAuthorizerAttributes(req.Context()); err == nil {
			if sink, policy := r.Log.ByContent(attributes); sink != nil {
				filters.WithAudit(flushes, sink, policy, nil).ServeHTTP(w, req)
				return
			}
		}
		byPolicy.ServeHTTP(w, req)
	})
}

// Write adds what a write means for deletions to the event.
func (r Recorder) Write(ctx context.Context, w *access.Write) {
	if r.Log == nil || w.OldMeta == nil {
		return
	}
	now := w.Meta.GetAnnotations()
	if w.Confirms {
		audit.AddAuditAnnotation(ctx, ReleasedAnnotation, lifecycle.Released(w.Meta, w.OldMeta))
	}
	if before := w.OldMeta.GetAnnotations(); w.Weakens || w.Resource.Group == "" && w.Resource.Resource == object.Namespaces {
		var changed []string
		for _, name := range lifecycle.NamespaceSettings {
			if before[name] != now[name] {
				changed = append(changed, fmt.Sprintf("%s from %q to %q", strings.TrimPrefix(name, auditlog.DeletionPrefix), before[name], now[name]))
			}
		}
		if len(changed) > 0 {
			audit.AddAuditAnnotation(ctx, SettingsAnnotation, strings.Join(changed, ", "))
		}
	}
	if w.OldMeta.GetDeletionTimestamp() == nil {
		return
	}
	removed := slices.DeleteFunc(slices.Clone(w.OldMeta.GetFinalizers()), func(f string) bool { return slices.Contains(w.Meta.GetFinalizers(), f) })
	if len(removed) > 0 {
		audit.AddAuditAnnotation(ctx, FinalizersAnnotation, strings.Join(removed, ", "))
	}
}

// Flushing adds Flush to a writer which has none, such as the library's.
type Flushing struct{ http.ResponseWriter }

// Unwrap implements what http.ResponseController looks for.
func (w Flushing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError implements what http.ResponseController looks for.
func (w Flushing) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

// Flush implements what the library's watch handler looks for.
func (w Flushing) Flush() { _ = w.FlushError() }

// Refusal writes audit events for requests without valid credentials.
func (r Recorder) Refusal(refuse http.Handler) http.Handler {
	if r.Log == nil {
		return refuse
	}
	return filters.WithFailedAuthenticationAudit(refuse, r.Log.Sink(), r.Log.Policy())
}

// Decision adds the authorizer's decision to the event.
func (r Recorder) Decision(ctx context.Context, allowed bool, reason string, err error) {
	if r.Log == nil {
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

// NeedsBodies reports whether the event needs a body that the fast paths do not add.
func (r Recorder) NeedsBodies(ctx context.Context, info *genericrequest.RequestInfo) bool {
	if r.Log == nil || info.Verb == "watch" { // events of a watch are not recorded
		return false
	}
	level := audit.AuditContextFrom(ctx).GetEventLevel()
	if info.Verb == "get" || info.Verb == "list" {
		return level.GreaterOrEqual(auditinternal.LevelRequestResponse)
	}
	return level.GreaterOrEqual(auditinternal.LevelRequest)
}

// Object adds the name, uid and version of the object that the client sent to the
// event, as the library's handlers do.
func (r Recorder) Object(ctx context.Context, v *kind.Version, obj runtime.Object) {
	if r.Log != nil {
		audit.LogRequestObject(ctx, obj, v.GVK.GroupVersion(), v.Resource(), "", v.Wire.Serializer)
	}
}

// Deletions counts what one request deleted.
type Deletions struct {
	policy          metav1.DeletionPropagation
	Removed, Marked int
}

// Add counts one object. A dry run deletes none.
func (d *Deletions) Add(result store.DeleteResult, options *metav1.DeleteOptions) {
	d.policy = cmp.Or(d.policy, result.Policy)
	switch {
	case options != nil && dryrun.IsDryRun(options.DryRun):
	case result.Outcome == lifecycle.Remove:
		d.Removed++
	case result.Outcome == lifecycle.Mark:
		d.Marked++
	}
}

// Deletions adds the deletions of one cascade to the event.
func (r Recorder) Deletions(ctx context.Context, cascade string, d Deletions) {
	if r.Log == nil {
		return
	}
	audit.AddAuditAnnotations(ctx, CascadeAnnotation, cascade,
		PolicyAnnotation, string(cmp.Or(d.policy, metav1.DeletePropagationBackground)),
		RemovedAnnotation, strconv.Itoa(d.Removed), MarkedAnnotation, strconv.Itoa(d.Marked))
}
