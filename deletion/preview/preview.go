// Package preview answers what a delete would remove ([Service.Preview]), and
// what the guard counts.
//
// The promise: a delete then does what the preview says, if no other client writes
// in between. The package has no rules of its own. It uses gc.Decide for every
// dependent and lifecycle.BeforeDelete for every deletion, as the collector does.
// If the result depends on the order of the collector's reviews, the item says so.
//
// A preview reads one snapshot of the database and writes nothing. It holds one batch of
// bodies at a time, and about 100 bytes for each object but for leaves (content.go), which are
// only counted; it reads the items of the requested page again.
//
// The package has no HTTP code: the question is a kind ([Service.Kind]) whose
// objects are answered and never stored. Begin with preview.go; walk.go follows
// the cascade.
package preview

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	defaultLimit  = 500
	maxLimit      = 10_000
	shownBlockers = 100
)

// Preview returns what a delete would do, as far as the client may know, and changes
// nothing. Errors: NotFound, Invalid, BadRequest, or the client's denial.
func (s *Service) Preview(ctx context.Context, client kind.Client, spec v1.DeletionPreviewSpec) (v1.DeletionPreviewStatus, error) {
	if err := deletion.MayGet(client, s.kinds.Snapshot(), spec.Object); err != nil {
		return v1.DeletionPreviewStatus{}, err
	}
	status, _, err := s.preview(ctx, client, spec)
	if err != nil {
		return v1.DeletionPreviewStatus{}, err
	}
	s.hide(client, &status)
	return status, nil
}

// preview also returns the walk, for tests.
func (s *Service) preview(ctx context.Context, client kind.Client, spec v1.DeletionPreviewSpec) (status v1.DeletionPreviewStatus, w *walk, err error) {
	options := metav1.DeleteOptions{PropagationPolicy: spec.PropagationPolicy, GracePeriodSeconds: spec.GracePeriodSeconds}
	if err := checkPreview(spec, options); err != nil {
		return status, nil, err
	}
	snapshot, err := s.store.Snapshot(ctx)
	if err != nil {
		return status, nil, err
	}
	defer snapshot.Close()
	r := newReader(ctx, snapshot)
	h, err := deletion.Find(ctx, r.Reader, s.kinds.Snapshot(), spec.Object, field.NewPath("spec", "object"))
	if err != nil {
		return status, nil, err
	}
	if h == nil || client.May("get", h.Key) != nil {
		return status, nil, deletion.NotFound(spec.Object)
	}
	limit := int(cmp.Or(spec.Limit, defaultLimit))
	after, err := parseContinue(spec.Continue, h)
	if err != nil {
		return status, nil, err
	}
	w = s.newWalk(r)
	w.collected, w.judges = client.JudgeCollected, client.Judges
	if client.JudgeDelete != nil && h.Deletion == 0 {
		w.denied = client.JudgeDelete(ctx, h.Object, options)
	}
	if !spec.CountsOnly {
		w.leaves.after, w.leaves.limit = after, limit+1
	}
	if err := w.run(h, options); err != nil {
		return status, nil, err
	}
	status = w.summary(h)
	if err := w.addGuard(&status, h, options); err != nil {
		return status, nil, err
	}
	w.addJudges(&status, client)
	if err := w.addBlockers(&status, options); err != nil {
		return status, nil, err
	}
	if !spec.CountsOnly {
		err = w.addPage(&status, options, after, limit)
	}
	if err == nil {
		var revision int64
		revision, err = r.Revision(ctx)
		status.ResourceVersion = strconv.FormatInt(revision, 10)
	}
	return status, w, err
}

func checkPreview(spec v1.DeletionPreviewSpec, options metav1.DeleteOptions) error {
	path := field.NewPath("spec")
	var errs field.ErrorList
	for _, e := range validation.ValidateDeleteOptions(&options) {
		e.Field = path.Child(e.Field).String()
		errs = append(errs, e)
	}
	if spec.Limit < 0 || spec.Limit > maxLimit {
		errs = append(errs, field.Invalid(path.Child("limit"), spec.Limit, fmt.Sprintf("must be between 0 and %d", maxLimit)))
	}
	if spec.CountsOnly && (spec.Limit != 0 || spec.Continue != "") {
		errs = append(errs, field.Forbidden(path.Child("countsOnly"), "excludes limit and continue: there are no items"))
	}
	if len(errs) > 0 {
		return object.InvalidFields(errs)
	}
	return nil
}

// summary counts the nodes by kind and action.
func (w *walk) summary(h *head) v1.DeletionPreviewStatus {
	type of struct {
		kind   int32
		action v1.Action
	}
	counts := map[of]int64{}
	for i := range w.nodes {
		counts[of{w.nodes[i].kind, w.action(&w.nodes[i])}]++
	}
	for kind, n := range w.leaves.counts {
		counts[of{kind, v1.Delete}] += n
	}
	status := v1.DeletionPreviewStatus{
		Object: w.reference(h.Key, h.UID), Action: w.action(&w.nodes[0]),
		Refused: w.refusal(h), Total: int64(len(w.nodes) + w.leaves.total), Truncated: w.full,
	}
	for key, n := range counts {
		kind := w.reference(object.Key{Kind: w.names[key.kind]}, "")
		status.Counts = append(status.Counts, v1.Count{APIVersion: kind.APIVersion, Kind: kind.Kind, Action: key.action, Count: n})
		if key.action == v1.Block {
			status.BlockersTotal += n
		}
	}
	slices.SortFunc(status.Counts, func(a, b v1.Count) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Action, b.Action))
	})
	return status
}

func (w *walk) addBlockers(status *v1.DeletionPreviewStatus, options metav1.DeleteOptions) error {
	chosen := w.choose(0, shownBlockers, func(n *node) bool { return w.action(n) == v1.Block })
	var err error
	status.Blockers, err = w.items(chosen, options)
	return err
}

// addPage adds the items after an object, in order of age: this order is stable
// when objects are created or removed between two pages.
func (w *walk) addPage(status *v1.DeletionPreviewStatus, options metav1.DeleteOptions, after int64, limit int) error {
	if err := w.recall(); err != nil {
		return err
	}
	chosen := w.choose(after, limit+1, func(*node) bool { return true })
	if len(chosen) > limit {
		chosen = chosen[:limit]
		status.Continue = formatContinue(status.Object, w.nodes[chosen[limit-1]].id)
	}
	var err error
	status.Items, err = w.items(chosen, options)
	return err
}

// choose returns the oldest matching nodes after an id.
func (w *walk) choose(after int64, limit int, fits func(*node) bool) []int32 {
	var chosen []int32
	for i := range w.nodes {
		if w.nodes[i].id > after && fits(&w.nodes[i]) {
			chosen = append(chosen, int32(i))
		}
	}
	slices.SortFunc(chosen, func(a, b int32) int { return cmp.Compare(w.nodes[a].id, w.nodes[b].id) })
	return chosen[:min(limit, len(chosen))]
}

// items reads the chosen objects again, a batch at a time, to name them.
func (w *walk) items(chosen []int32, options metav1.DeleteOptions) ([]v1.Item, error) {
	var out []v1.Item
	for batch := range slices.Chunk(chosen, w.s.opts.Batch) {
		ids := make([]int64, len(batch))
		for i, at := range batch {
			ids[i] = w.nodes[at].id
		}
		heads, err := w.r.heads(w.r.GetByIDs(w.r.ctx, ids))
		if err != nil {
			return nil, err
		}
		open := make([]question, len(heads))
		for i := range heads {
			open[i].head = heads[i]
			if open[i].meta, err = object.ParseMeta(heads[i].Body); err != nil {
				return nil, fmt.Errorf("read %s: %w", heads[i].Key, err)
			}
		}
		owners, err := w.lookUp(open)
		if err != nil {
			return nil, err
		}
		for i := range open {
			item, err := w.item(&open[i], owners, options)
			if err != nil {
				return nil, err
			}
			out = append(out, item)
		}
	}
	return out, nil
}

// formatContinue returns the token of the page after an object.
func formatContinue(of v1.ObjectReference, id int64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s %d", of.UID, id))
}

func parseContinue(token string, h *head) (after int64, err error) {
	if token == "" {
		return 0, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	uid, id, found := strings.Cut(string(text), " ")
	if err == nil && found {
		after, err = strconv.ParseInt(id, 10, 64)
	}
	if err != nil || !found {
		return 0, object.BadRequestf("spec.continue is not a token of an earlier answer")
	}
	if uid != string(h.UID) {
		return 0, object.BadRequestf("spec.continue belongs to the preview of another object, with uid %s", uid)
	}
	return after, nil
}

// Options configure a Service. Zero values are the defaults.
type Options struct {
	Now func() time.Time
	// Batch bounds the objects of one read. One more read may be in memory. Default 500.
	Batch int
	// Objects bounds the objects that a preview follows. Default 1,000,000.
	Objects int
	// MaxCascade is the guard's limit for Namespaces without their own. 0 means no limit.
	MaxCascade int64
}

// Service answers previews. It is safe for concurrent use.
type Service struct {
	store *store.Store
	kinds *kind.Registry
	opts  Options

	maxCascade atomic.Int64 // Options.MaxCascade at first
}

// New makes a service.
func New(st *store.Store, kinds *kind.Registry, o Options) (*Service, error) {
	if st == nil || kinds == nil {
		return nil, errors.New("new preview service: store and kinds must be set")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Batch <= 0 {
		o.Batch = 500
	}
	if o.Objects <= 0 {
		o.Objects = 1_000_000
	}
	s := &Service{store: st, kinds: kinds, opts: o}
	s.SetMaxCascade(o.MaxCascade)
	return s, nil
}

// SetMaxCascade replaces Options.MaxCascade, for the previews that begin from now on.
func (s *Service) SetMaxCascade(limit int64) { s.maxCascade.Store(limit) }

// Kind returns the kind of the question, for the kind registry.
func (s *Service) Kind() *kind.Kind {
	return kind.NewQuestion(v1.Scheme(), &v1.DeletionPreview{}, "deletionpreviews", v1.Schema(v1.DeletionPreview{}), kind.Asked(s.answer))
}

func (s *Service) answer(ctx context.Context, p *v1.DeletionPreview, call kind.Call) (err error) {
	p.Status, err = s.Preview(ctx, call.Client, p.Spec)
	if object.Is(err, object.NotFound) {
		return s.missing(p.Spec.Object)
	}
	return err
}

// missing returns the NotFound of the object in the question. Without it, clients
// would read that the question itself was not found.
func (s *Service) missing(ref v1.ObjectReference) error {
	resource, name := schema.GroupResource{Resource: "objects"}, string(ref.UID)
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); err == nil && ref.Name != "" {
		name = ref.Name
		if k := s.kinds.Snapshot().Named(gv.WithKind(ref.Kind)); k != nil {
			resource = schema.GroupResource{Group: k.Group, Resource: k.Plural}
		}
	}
	return apierrors.NewNotFound(resource, name)
}
