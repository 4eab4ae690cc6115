// Package finalizer removes the finalizer of another controller from an object
// that is being deleted ([Service.RemoveFinalizer]).
//
// A finalizer promises that its controller cleans up. Removing it breaks that
// promise, so it is its own request and not a patch: it needs a reason, and it
// leaves a log line and an Event, in the same transaction, that outlives the
// object. The service refuses to remove finalizers of this server itself, and
// names the command to use instead.
//
// It uses metadata and the removal rules of the kind only, so it works for objects
// whose definition is broken or gone.
//
// The package has no HTTP code: the request is a kind ([Service.Kinds]) whose
// objects are answered and never stored. The decision is a pure function.
package finalizer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// reporter is the source of the Event about a removal.
const reporter = "exeunt"

// Service removes finalizers. It is safe for concurrent use.
type Service struct {
	store *store.Store
	kinds *kind.Registry
	log   *slog.Logger
}

// New makes a service on a store.
func New(st *store.Store, kinds *kind.Registry, log *slog.Logger) (*Service, error) {
	if st == nil || kinds == nil {
		return nil, errors.New("new finalizer service: store and kinds must be set")
	}
	log = cmp.Or(log, slog.Default())
	return &Service{store: st, kinds: kinds, log: log}, nil
}

// RemoveFinalizer removes the finalizer in spec, for a client. It
// reads the object, decides, changes it and records the Event in one transaction.
// Errors: NotFound; Conflict for another uid or an object that is not DELETING;
// Invalid otherwise.
func (s *Service) RemoveFinalizer(ctx context.Context, spec v1.FinalizerRemovalSpec, client kind.Client) (v1.FinalizerRemovalStatus, error) {
	var status v1.FinalizerRemovalStatus
	if err := checkSpec(spec); err != nil {
		return status, err
	}
	find, err := s.finder(client, spec.Object)
	if err != nil {
		return status, err
	}
	err = s.store.Transact(ctx, func(tx *store.Tx) error {
		o, err := find(ctx, tx)
		if err != nil {
			return err
		}
		if err := client.May("force-finalize", o.Key); err != nil {
			return err
		}
		status, err = s.remove(ctx, tx, o, spec, client.Name)
		return err
	})
	if err != nil {
		return v1.FinalizerRemovalStatus{}, err
	}
	if !spec.DryRun {
		s.log.Warn("finalizer removed by force", "kind", status.Object.Kind, "namespace", status.Object.Namespace, "name", status.Object.Name,
			"uid", status.Object.UID, "finalizer", spec.Finalizer, "actor", client.Name, "reason", spec.Reason, "gone", status.Gone)
	}
	return status, nil
}

func (s *Service) remove(ctx context.Context, tx *store.Tx, o *store.Stored, spec v1.FinalizerRemovalSpec, client string) (v1.FinalizerRemovalStatus, error) {
	status := v1.FinalizerRemovalStatus{Object: s.reference(o)}
	var rules lifecycle.Rules
	if k, ok := s.kinds.Snapshot().Stored(o.Key.Kind); ok {
		rules = k.Rules
	}
	d, err := decide(o, spec.Finalizer, rules, status.Object)
	if err != nil {
		return status, err
	}
	status.Gone, status.Finalizers = d.remove, d.left
	if spec.DryRun {
		return status, nil
	}
	message := fmt.Sprintf("finalizer %s removed by %s: %s", spec.Finalizer, client, spec.Reason)
	if err := tx.SetCause(ctx, client, ""); err != nil {
		return status, err
	}
	if d.remove {
		message += " (nothing else held the object: it is gone)"
		tx.Remove(o)
	} else if _, err := tx.Rewrite(o, &d.meta, d.body); err != nil {
		return status, err
	}
	return status, event.Recorder{Kinds: s.kinds}.Record(ctx, tx, tx.Now, event.Event{
		About: o.Object, Type: corev1.EventTypeWarning, Reason: "FinalizerRemoved", Message: message, Source: reporter,
		// If the finalizer is set and removed again, that is another Event.
		Topic: spec.Finalizer + " " + o.ResourceVersion(), Elsewhere: true,
	})
}

// find reads the object of a request in its transaction.
type find func(ctx context.Context, tx *store.Tx) (*store.Stored, error)

// check returns what a read found, if it is the object that the client means.
func check(found *store.Stored, missing func() error, uid types.UID) (*store.Stored, error) {
	if found == nil {
		return nil, missing()
	}
	if uid != "" && uid != found.UID {
		return nil, object.Errorf(object.Conflict, "%s %s has the uid %s, not %s: another object has that name now", found.Kind, found.Name, found.UID, uid)
	}
	return found, nil
}

// metaOf parses the metadata of a stored object.
func metaOf(o *store.Stored) (metav1.ObjectMeta, error) {
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return m, fmt.Errorf("read %s: %w", o.Key, err)
	}
	return m, nil
}

var finalizerPath = field.NewPath("spec", "finalizer")

// decision is the new state of the object.
type decision struct {
	remove bool // nothing holds it: remove it
	meta   metav1.ObjectMeta
	body   []byte
	left   []string // finalizers, including those of a Namespace's spec
}

// decide decides about the removal of a finalizer.
//
// It refuses for an ACTIVE object: the finalizer holds nothing yet, its controller
// would set it again, and the removal would silently disable a protection.
func decide(o *store.Stored, finalizer string, rules lifecycle.Rules, ref v1.ObjectReference) (decision, error) {
	m, err := metaOf(o)
	if err != nil {
		return decision{}, err
	}
	in := inSpec(o)
	if !slices.Contains(m.Finalizers, finalizer) && !slices.Contains(in, finalizer) {
		return decision{}, refuse(field.Invalid(finalizerPath, finalizer, "not on "+describe(ref)+", "+has(append(slices.Clone(m.Finalizers), in...))))
	}
	if instead := alternative(finalizer, ref); instead != "" {
		return decision{}, refuse(field.Forbidden(finalizerPath, instead))
	}
	if m.DeletionTimestamp == nil {
		return decision{}, object.Errorf(object.Conflict,
			"%s is not being deleted, so the finalizer holds nothing yet: delete the object first", describe(ref))
	}
	d := decision{meta: m, body: o.Body}
	d.meta.Finalizers = slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool { return f == finalizer })
	if slices.Contains(in, finalizer) {
		in = slices.DeleteFunc(slices.Clone(in), func(f string) bool { return f == finalizer })
		if d.body, err = withSpec(o, in); err != nil {
			return decision{}, err
		}
	}
	d.left = append(slices.Clone(d.meta.Finalizers), in...)
	if d.remove = lifecycle.RemoveNow(d.body, d.meta, rules); d.remove {
		return d, nil
	}
	d.body, err = object.WithMeta(d.body, d.meta)
	return d, err
}

// has lists finalizers in words.
func has(finalizers []string) string {
	if len(finalizers) == 0 {
		return "which has no finalizers"
	}
	return "which has: " + strings.Join(finalizers, ", ")
}

func refuse(err *field.Error) error { return object.InvalidFields(field.ErrorList{err}) }

// alternative says what to do instead of removing a finalizer of this server.
// Removing it would leave the server's work half done; each one has a command that
// ends it properly. Empty if the finalizer belongs to another controller.
func alternative(finalizer string, ref v1.ObjectReference) string {
	target := strings.ToLower(ref.Kind) + " " + ref.Name
	if ref.Namespace != "" {
		target += " -n " + ref.Namespace
	}
	switch finalizer {
	case metav1.FinalizerDeleteDependents:
		return "it is the collector's, which deletes the dependents first; to stop waiting for them: kubectl delete " + target + " --cascade=background"
	case metav1.FinalizerOrphanDependents:
		return "it is the collector's, which orphans the dependents first; to have them deleted instead: kubectl delete " + target + " --cascade=background"
	case lifecycle.ConfirmCascade:
		return "it is the guard's, which holds a cascade above the limit until it is confirmed; to confirm or to call it off, see: exeunt why " + strings.Replace(target, " ", "/", 1)
	case lifecycle.PropagateGrace:
		return "it is the collector's, which passes the grace period on to the dependents first; see: exeunt gc status"
	case apiextensionsv1.CustomResourceCleanupFinalizer:
		return "without it the definition would leave objects behind that no client can reach; see what keeps them: exeunt why " + strings.Replace(target, " ", "/", 1)
	case string(corev1.FinalizerKubernetes):
		if ref.Kind == "Namespace" {
			return "it stands for the namespace's content, which would be left behind; see what keeps it: exeunt why namespace/" + ref.Name
		}
	}
	return ""
}

// describe names an object for people: "Deployment web in namespace shop".
func describe(ref v1.ObjectReference) string {
	text := ref.Kind + " " + ref.Name
	if ref.Namespace != "" {
		text += " in namespace " + ref.Namespace
	}
	return text
}

var namespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

// inSpec returns the finalizers in a Namespace's spec.
func inSpec(o *store.Stored) []string {
	if o.Kind != object.Namespaces {
		return nil
	}
	var ns corev1.Namespace
	if object.DecodeInto(o.Body, "", namespaceKind, &ns) != nil {
		return nil // unreadable: no finalizer can be named
	}
	var out []string
	for _, f := range ns.Spec.Finalizers {
		out = append(out, string(f))
	}
	return out
}

// withSpec returns a Namespace's body with these finalizers in its spec.
func withSpec(o *store.Stored, finalizers []string) ([]byte, error) {
	var ns corev1.Namespace
	if err := object.DecodeInto(o.Body, "", namespaceKind, &ns); err != nil {
		return nil, fmt.Errorf("read %s: %w", o.Key, err)
	}
	ns.Spec.Finalizers = nil
	for _, f := range finalizers {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerName(f))
	}
	return object.Encode(&ns)
}

// maxReason bounds a reason, in bytes, so that it fits into an Event's message.
const maxReason = 600

// Kinds returns the request's kind, for the kind registry.
func (s *Service) Kinds() []*kind.Kind {
	return []*kind.Kind{kind.NewQuestion(v1.Scheme(), &v1.FinalizerRemoval{}, "finalizerremovals", v1.Schema(v1.FinalizerRemoval{}), kind.Asked(s.answer))}
}

func (s *Service) answer(ctx context.Context, r *v1.FinalizerRemoval, call kind.Call) (err error) {
	r.Spec.DryRun = r.Spec.DryRun || call.DryRun
	r.Status, err = s.RemoveFinalizer(ctx, r.Spec, call.Client)
	return err
}

func checkSpec(spec v1.FinalizerRemovalSpec) error {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if spec.Finalizer == "" {
		errs = append(errs, field.Required(finalizerPath, "name the finalizer to remove"))
	}
	switch reason := strings.TrimSpace(spec.Reason); {
	case reason == "":
		errs = append(errs, field.Required(path.Child("reason"), "say why: it is kept with the object's events"))
	case len(reason) > maxReason:
		errs = append(errs, field.TooLong(path.Child("reason"), "", maxReason))
	}
	if spec.Object == (v1.ObjectReference{}) {
		errs = append(errs, field.Required(path.Child("object"), "name the object by apiVersion, kind and name, or by uid alone"))
	}
	if len(errs) > 0 {
		return object.InvalidFields(errs)
	}
	return nil
}

// finder returns the find for a request's object. If the kind is not served, it is
// read as a plural and its apiVersion as a group, with or without version: so
// clients name objects of a broken definition.
func (s *Service) finder(client kind.Client, ref v1.ObjectReference) (find, error) {
	path := field.NewPath("spec", "object")
	if strings.ContainsRune(string(ref.UID), 0) {
		return nil, refuse(field.Invalid(path.Child("uid"), ref.UID, "must not contain NUL"))
	}
	if ref.Kind == "" && ref.APIVersion == "" && ref.Name == "" && ref.Namespace == "" {
		missing := func() error {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, string(ref.UID))
		}
		return func(ctx context.Context, tx *store.Tx) (*store.Stored, error) {
			found, err := tx.GetByUID(ctx, ref.UID)
			if err != nil {
				return nil, err
			}
			if found != nil && client.May("force-finalize", found.Key) != nil && client.May("get", found.Key) != nil {
				found = nil // such a client does not learn that it exists
			}
			return check(found, missing, "")
		}, nil
	}
	var errs field.ErrorList
	if ref.Kind == "" {
		errs = append(errs, field.Required(path.Child("kind"), "name the object by apiVersion, kind and name, or by uid alone"))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "name the object by apiVersion, kind and name, or by uid alone"))
	}
	for _, f := range []struct{ name, value string }{{"kind", ref.Kind}, {"apiVersion", ref.APIVersion}, {"namespace", ref.Namespace}, {"name", ref.Name}} {
		if strings.ContainsRune(f.value, 0) { // PostgreSQL rejects NUL in text
			errs = append(errs, field.Invalid(path.Child(f.name), f.value, "must not contain NUL"))
		}
	}
	if len(errs) > 0 {
		return nil, object.InvalidFields(errs)
	}
	resource := schema.GroupResource{Resource: strings.ToLower(ref.Kind)}
	resource.Group, _, _ = strings.Cut(ref.APIVersion, "/")
	if !strings.Contains(ref.APIVersion, "/") && !strings.Contains(ref.APIVersion, ".") {
		resource.Group = "" // a version of the core group
	}
	storage := kind.StorageName(resource.Group, resource.Resource)
	if k, err := s.served(ref, path); err != nil {
		return nil, err
	} else if k != nil {
		storage, resource = k.Storage, schema.GroupResource{Group: k.Group, Resource: k.Plural}
	}
	// Only a client that may act learns whether the object exists.
	if err := client.MayResource("force-finalize", resource, ref.Namespace, ref.Name); err != nil {
		return nil, err
	}
	missing := func() error { return apierrors.NewNotFound(resource, ref.Name) }
	key := object.Key{Kind: storage, Namespace: ref.Namespace, Name: ref.Name}
	return func(ctx context.Context, tx *store.Tx) (*store.Stored, error) {
		found, err := tx.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		return check(found, missing, ref.UID)
	}, nil
}

// served returns the kind, nil if it is not served, and checks that the namespace
// fits its scope.
func (s *Service) served(ref v1.ObjectReference, path *field.Path) (*kind.Kind, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, refuse(field.Invalid(path.Child("apiVersion"), ref.APIVersion, err.Error()))
	}
	k := s.kinds.Snapshot().Named(gv.WithKind(ref.Kind))
	switch {
	case k == nil:
		return nil, nil
	case k.Ephemeral || k.Source != nil:
		return nil, refuse(field.Invalid(path.Child("kind"), ref.Kind, "objects of this kind have no finalizers"))
	case k.Namespaced && ref.Namespace == "":
		return nil, refuse(field.Required(path.Child("namespace"), ref.Kind+" lives in a namespace"))
	case !k.Namespaced && ref.Namespace != "":
		return nil, refuse(field.Invalid(path.Child("namespace"), ref.Namespace, ref.Kind+" lives in no namespace"))
	}
	return k, nil
}

func (s *Service) reference(o *store.Stored) v1.ObjectReference {
	ref := v1.ObjectReference{Namespace: o.Namespace, Name: o.Name, UID: o.UID}
	ref.Kind, ref.APIVersion = s.kinds.Snapshot().Names(o.Kind)
	return ref
}
