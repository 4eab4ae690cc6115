// Package report answers why an object, or a namespace, still exists
// ([Service.Report]): the finalizers on it and who set them, its grace period,
// what it waits for as a tree, and the state of its review; and what to do about
// each.
//
// A report reads one snapshot of the database and writes nothing. It has no rules
// of its own: gc.Classify says what keeps an object, package preview counts what
// the guard holds, and a [Keeper] explains the finalizer of another part of this
// server. It lists the first of many objects, and not all: a person reads it.
//
// The package has no HTTP code: the question is a kind ([Service.Kind]) whose
// objects are answered and never stored. Begin with report.go.
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/deletion"
	"github.com/exeunt/exeunt/deletion/expiry"
	"github.com/exeunt/exeunt/deletion/preview"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/graph"
)

// A report is for a person who wants to act: it lists the first of many objects,
// and not all.
const (
	maxDepth    = 5   // of the tree
	maxChildren = 10  // objects below one reason
	maxObjects  = 200 // objects in one report
)

// Report returns why an object, or a namespace, still exists, as far as the client may
// know. Errors: Invalid, or the client's denial. An object that does not exist is not an
// error: the status says so.
func (s *Service) Report(ctx context.Context, client kind.Client, spec v1.DeletionReportSpec) (v1.DeletionReportStatus, error) {
	asked := spec.Object
	if spec.Namespace != "" {
		asked = v1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: spec.Namespace}
	}
	kinds := s.kinds.Snapshot()
	if err := deletion.MayGet(client, kinds, asked); err != nil {
		return v1.DeletionReportStatus{}, err
	}
	status, err := s.report(ctx, client, spec)
	if err != nil {
		return v1.DeletionReportStatus{}, err
	}
	hideReasons(client, kinds, status.Reasons)
	return status, nil
}

func (s *Service) report(ctx context.Context, client kind.Client, spec v1.DeletionReportSpec) (v1.DeletionReportStatus, error) {
	var status v1.DeletionReportStatus
	path := field.NewPath("spec")
	ref := spec.Object
	if spec.Namespace != "" {
		if ref != (v1.ObjectReference{}) {
			return status, object.InvalidFields(field.ErrorList{field.Forbidden(path.Child("namespace"), "give an object or a namespace, not both")})
		}
		ref = v1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: spec.Namespace}
	}
	snapshot, err := s.store.Snapshot(ctx)
	if err != nil {
		return status, err
	}
	defer snapshot.Close()
	t := &reporter{s: s, r: snapshot, ctx: ctx, kinds: s.kinds.Snapshot(), now: s.opts.Now(), reported: map[types.UID]bool{}}
	o, err := deletion.Find(ctx, &snapshot.Reader, t.kinds, ref, path.Child("object"))
	if err != nil {
		return status, err
	}
	switch {
	case o == nil:
		status, err = t.absent(client, ref, path.Child("object"))
	case client.May("get", o.Key) != nil:
		status = v1.DeletionReportStatus{Object: ref, State: v1.DoesNotExist}
	default:
		status, err = t.present(o)
	}
	if err == nil {
		var revision int64
		revision, err = snapshot.Revision(ctx)
		status.ResourceVersion = strconv.FormatInt(revision, 10)
	}
	status.Truncated = t.truncated
	return status, err
}

// reporter collects the reasons for one report.
type reporter struct {
	s         *Service
	r         *store.Snapshot
	ctx       context.Context
	kinds     *kind.Snapshot
	now       time.Time
	objects   int                // in the report so far
	reported  map[types.UID]bool // DELETING objects whose reasons are in the report
	truncated bool
}

func (t *reporter) reference(key object.Key, uid types.UID) v1.ObjectReference {
	return deletion.Reference(t.kinds, key, uid)
}

func (t *reporter) present(h *store.Stored) (v1.DeletionReportStatus, error) {
	status := v1.DeletionReportStatus{Object: t.reference(h.Key, h.UID), Exists: true, State: v1.Active}
	var err error
	if h.Deletion == 0 {
		status.Reasons, err = t.active(h)
		return status, err
	}
	status.State = v1.Deleting
	if status.Remaining, err = t.remaining(h); err != nil {
		return status, err
	}
	status.Reasons, err = t.reasons(h, 0)
	return status, err
}

// remaining counts the objects that must be removed before this one.
func (t *reporter) remaining(h *store.Stored) (n int64, err error) {
	switch {
	case h.Finalizing&(store.FinalizeOrphan|store.FinalizeForeground) != 0:
		n, err = graph.CountDependents(t.ctx, t.r, h.UID, math.MaxInt64)
	case h.Kind == object.Namespaces:
		var content []kindCount
		content, err = t.content(h.Name)
		for _, c := range content {
			n += c.count
		}
	case h.Kind == object.Definitions:
		if storage, ok := kind.Defined(h.Body); ok {
			n, err = t.r.Count(t.ctx, storage, store.AllNamespaces, math.MaxInt64)
		}
	}
	return n, err
}

// reasons returns those of a DELETING object: first what other clients must act
// on, then what it waits for, then the state of the collector.
func (t *reporter) reasons(h *store.Stored, depth int) ([]v1.Reason, error) {
	t.reported[h.UID] = true
	m, err := object.ParseMeta(h.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", h.Key, err)
	}
	if h.Held() {
		guard, err := t.guarded(h)
		if err != nil {
			return nil, err
		}
		collector, err := t.collector(h.UID)
		return append([]v1.Reason{guard}, slices.DeleteFunc(collector, isHealthyReview)...), err
	}
	out, err := t.finalizers(h, m, depth)
	if err != nil {
		return nil, err
	}
	out = append(out, t.grace(h, m)...)
	for _, more := range []func(*store.Stored, metav1.ObjectMeta, int) ([]v1.Reason, error){
		t.orphaning, t.blocking, t.namespaceContent, t.definitionContent,
	} {
		reasons, err := more(h, m, depth)
		if err != nil {
			return nil, err
		}
		out = append(out, reasons...)
	}
	if h.Finalizing == 0 {
		return out, nil
	}
	// An object that waits for others needs no review now: they will cause one.
	collector, err := t.collector(h.UID)
	if len(out) > 0 && h.Finalizing&(store.FinalizeOrphan) == 0 {
		collector = slices.DeleteFunc(collector, isHealthyReview)
	}
	return append(out, collector...), err
}

// isHealthyReview reports whether a reason is a review that does not fail.
func isHealthyReview(r v1.Reason) bool { return r.Type == v1.ReasonReview && r.Since == nil }

// active returns the reasons of an object that is not DELETING: what it goes with, and its
// owners. If neither makes it leave, no client deleted it.
func (t *reporter) active(h *store.Stored) ([]v1.Reason, error) {
	m, err := object.ParseMeta(h.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", h.Key, err)
	}
	out, err := t.goesWith(h)
	if err != nil {
		return nil, err
	}
	leaves := len(out) > 0
	owners, err := gc.Owners(t.ctx, &t.r.Reader, uidsOf(m.OwnerReferences))
	if err != nil {
		return nil, err
	}
	dangling := 0
	for i := range m.OwnerReferences {
		r := &m.OwnerReferences[i]
		reason, missing := owned(r, gc.Classify(h.Namespace, gc.Identify(t.kinds, gc.ReferenceOf(r), owners[r.UID]), owners[r.UID]), h.Namespace)
		out = append(out, reason)
		if missing {
			dangling++
		}
	}
	if !leaves && dangling < max(1, len(m.OwnerReferences)) {
		out = slices.Insert(out, 0, v1.Reason{Type: v1.ReasonNotDeleted, Message: "no client has asked for its deletion"})
	}
	if expires, err := t.expires(h); err != nil {
		return nil, err
	} else if expires != nil {
		out = append(out, *expires)
	}
	asked, err := t.admission(h.UID)
	if err != nil || len(asked) > 0 || dangling == 0 {
		return append(out, asked...), err
	}
	for _, uid := range append(uidsOf(m.OwnerReferences), h.UID) {
		collector, err := t.collector(uid)
		if err != nil {
			return nil, err
		}
		for _, reason := range collector {
			if !slices.ContainsFunc(out, func(o v1.Reason) bool { return o.Type == reason.Type }) {
				out = append(out, reason)
			}
		}
	}
	return out, nil
}

// expires is the reason of an object that the server deletes at a time. Its review may have failed.
func (t *reporter) expires(h *store.Stored) (*v1.Reason, error) {
	p, failure, err := expiry.Next(t.ctx, &t.r.Reader, t.kinds, &t.s.policies, h, t.s.opts.Now())
	if err != nil || p.By == "" {
		return nil, err
	}
	ref := t.reference(h.Key, h.UID)
	message, left := fmt.Sprintf("it expires at %s by %s", p.At.UTC().Format(time.RFC3339), p.By), p.At.Sub(t.s.opts.Now())
	if left > 0 {
		message = fmt.Sprintf("it expires in %s, at %s, by %s", duration.HumanDuration(left), p.At.UTC().Format(time.RFC3339), p.By)
	}
	if failure != "" {
		message = fmt.Sprintf("it expired at %s by %s; the server tries again: %s", p.At.UTC().Format(time.RFC3339), p.By, failure)
	}
	return &v1.Reason{Type: v1.ReasonExpires, Message: message, Resolve: "to keep it: exeunt keep " + deletion.Target(ref)}, err
}

// uidsOf returns the uids of references, each once.
func uidsOf(references []metav1.OwnerReference) []types.UID {
	var out []types.UID
	for _, r := range references {
		if !slices.Contains(out, r.UID) {
			out = append(out, r.UID)
		}
	}
	return out
}

// hideReasons replaces the reasons about other objects that the client may not get.
func hideReasons(client kind.Client, kinds *kind.Snapshot, reasons []v1.Reason) {
	for i := range reasons {
		if o := reasons[i].Object; o != nil && deletion.MayGet(client, kinds, *o) != nil {
			reasons[i] = v1.Reason{Type: reasons[i].Type, Message: "an object that you may not get"}
			continue
		}
		hideReasons(client, kinds, reasons[i].Children)
	}
}

// Options configure a Service. Zero values are the defaults.
type Options struct {
	Now func() time.Time
	// CollectorOff says that no collector runs in this process.
	CollectorOff bool
	// OrphanWait is the collector's option. Default gc.DefaultOrphanWait.
	OrphanWait time.Duration
	// Keepers are the parts of this server that set finalizers, by finalizer.
	Keepers map[string]Keeper
}

// Service answers reports. It is safe for concurrent use.
type Service struct {
	store    *store.Store
	kinds    *kind.Registry
	previews *preview.Service
	opts     Options
	policies expiry.Policies
}

// New makes a service. The previews count the cascades that the guard holds.
func New(st *store.Store, kinds *kind.Registry, previews *preview.Service, o Options) (*Service, error) {
	if st == nil || kinds == nil || previews == nil {
		return nil, errors.New("new report service: store, kinds and previews must be set")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.OrphanWait = cmp.Or(o.OrphanWait, gc.DefaultOrphanWait)
	return &Service{store: st, kinds: kinds, previews: previews, opts: o}, nil
}

// Kind returns the kind of the question, for the kind registry.
func (s *Service) Kind() *kind.Kind {
	return kind.NewQuestion(v1.Scheme(), &v1.DeletionReport{}, "deletionreports", v1.Schema(v1.DeletionReport{}), kind.Asked(func(ctx context.Context, r *v1.DeletionReport, call kind.Call) (err error) {
		r.Status, err = s.Report(ctx, call.Client, r.Spec)
		return err
	}))
}
