// Package policy holds the default roles and bindings: those of Kubernetes, and what this
// server adds to them (additions.yaml). It creates and updates them at every start, and keeps
// aggregated ClusterRoles up to date. An object with the annotation
// rbac.authorization.kubernetes.io/autoupdate "false" is left alone.
//
// It does not decide (access/rbac), and it does not follow the store (access/directory).
package policy

import (
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/rbac"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
)

//go:embed additions.yaml
var additionsYAML []byte

// Default returns the default roles and bindings. Aggregated roles have their rules. Do not
// change it.
var Default = sync.OnceValue(func() rbac.Objects {
	var own struct {
		ClusterRoles        []rbacv1.ClusterRole
		ClusterRoleBindings []rbacv1.ClusterRoleBinding
	}
	if err := yaml.UnmarshalStrict(additionsYAML, &own); err != nil {
		panic(fmt.Sprintf("default policy: %v", err)) // the input is constant: one test call proves it
	}
	d := rbac.Objects{
		Roles: map[types.NamespacedName]*rbacv1.Role{}, ClusterRoles: map[string]*rbacv1.ClusterRole{},
		RoleBindings: map[types.NamespacedName]*rbacv1.RoleBinding{}, ClusterRoleBindings: map[string]*rbacv1.ClusterRoleBinding{},
	}
	for _, r := range slices.Concat(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles(), own.ClusterRoles) {
		if known := d.ClusterRoles[r.Name]; known != nil {
			known.Rules = append(known.Rules, r.Rules...)
			continue
		}
		mark(&r.ObjectMeta)
		d.ClusterRoles[r.Name] = &r
	}
	for _, b := range slices.Concat(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings(), own.ClusterRoleBindings) {
		mark(&b.ObjectMeta)
		d.ClusterRoleBindings[b.Name] = &b
	}
	for namespace, roles := range bootstrappolicy.NamespaceRoles() {
		for _, r := range roles {
			d.Roles[types.NamespacedName{Namespace: namespace, Name: r.Name}] = &r
		}
	}
	for namespace, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, b := range bindings {
			d.RoleBindings[types.NamespacedName{Namespace: namespace, Name: b.Name}] = &b
		}
	}
	aggregate(d.ClusterRoles)
	return d
})

// mark marks a default object as Kubernetes does.
func mark(m *metav1.ObjectMeta) {
	metav1.SetMetaDataLabel(m, "kubernetes.io/bootstrapping", "rbac-defaults")
	metav1.SetMetaDataAnnotation(m, rbacv1.AutoUpdateAnnotationKey, "true")
}

// aggregate fills the aggregated roles. Some aggregate others that are aggregated, so
// it repeats until nothing changes; three levels exist.
func aggregate(all map[string]*rbacv1.ClusterRole) {
	for range 3 {
		for _, r := range all {
			if rules, ok := rbac.Aggregate(r, all); ok {
				r.Rules = rules
			}
		}
	}
}

// Aggregator writes the rules of aggregated ClusterRoles, as Kubernetes does, so that
// they can be read and every decision is made from what is stored. Every replica runs
// it: all compute the same, and the first write wins.
type Aggregator struct {
	Directory *directory.Directory
	Writer    objects.Writer
	Logger    *slog.Logger
}

// Run keeps the roles up to date until the context ends.
func (a *Aggregator) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		index, changed := a.Directory.Changed()
		retry := a.runOnce(ctx, index)
		var again <-chan time.Time
		if retry {
			again = time.After(time.Second)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again:
		}
	}
	return nil
}

// runOnce updates every role whose rules are not those of its sources. It returns true
// if a write failed that no other change will repeat.
func (a *Aggregator) runOnce(ctx context.Context, index *rbac.Index) (retry bool) {
	all := index.Objects().ClusterRoles
	for _, role := range all {
		rules, ok := rbac.Aggregate(role, all)
		if !ok || equality.Semantic.DeepEqual(rules, role.Rules) {
			continue
		}
		next := role.DeepCopy()
		next.Rules = rules
		err := a.Writer.Update(ctx, clusterRoles, next, role)
		if err == nil || object.Is(err, object.Conflict) || object.Is(err, object.NotFound) {
			continue // the change wakes Run again
		}
		if ctx.Err() == nil {
			a.Logger.Warn("aggregated ClusterRole could not be written; the next try is in a second", "name", role.Name, "error", err)
			retry = true
		}
	}
	return retry
}

var (
	clusterRoles        = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	clusterRoleBindings = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
	roles               = rbacv1.SchemeGroupVersion.WithResource("roles")
	roleBindings        = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
)

// writes is how many objects are written at once: the store puts them into one commit.
const writes = 64

// Reconcile creates the default roles and bindings that are missing, and adds what
// others lack. It removes nothing that an administrator added. The library decides
// what to do; current are the stored objects.
//
// Replicas that start at once write the same: the second gets AlreadyExists or
// Conflict, which is not an error.
func Reconcile(ctx context.Context, w objects.Writer, current rbac.Objects, log *slog.Logger) error {
	r := reconciler{w: w, log: log}
	r.group, r.ctx = errgroup.WithContext(ctx)
	r.group.SetLimit(writes)
	d := Default()
	for _, role := range d.ClusterRoles {
		stored := current.ClusterRoles[role.Name]
		r.rule(clusterRoles, reconciliation.ClusterRoleRuleOwner{ClusterRole: role}, existing(stored, func() reconciliation.RuleOwner {
			return reconciliation.ClusterRoleRuleOwner{ClusterRole: stored}
		}))
	}
	for key, role := range d.Roles {
		stored := current.Roles[key]
		r.rule(roles, reconciliation.RoleRuleOwner{Role: role}, existing(stored, func() reconciliation.RuleOwner {
			return reconciliation.RoleRuleOwner{Role: stored}
		}))
	}
	for _, b := range d.ClusterRoleBindings {
		stored := current.ClusterRoleBindings[b.Name]
		r.binding(clusterRoleBindings, reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: b}, existing(stored, func() reconciliation.RoleBinding {
			return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: stored}
		}))
	}
	for key, b := range d.RoleBindings {
		stored := current.RoleBindings[key]
		r.binding(roleBindings, reconciliation.RoleBindingAdapter{RoleBinding: b}, existing(stored, func() reconciliation.RoleBinding {
			return reconciliation.RoleBindingAdapter{RoleBinding: stored}
		}))
	}
	return r.group.Wait()
}

// existing is the Get that the library calls: the stored object, or NotFound.
func existing[T any, O any](stored *T, wrap func() O) func() (O, error) {
	return func() (none O, err error) {
		if stored == nil {
			return none, apierrors.NewNotFound(schema.GroupResource{}, "")
		}
		return wrap(), nil
	}
}

type reconciler struct {
	w     objects.Writer
	log   *slog.Logger
	group *errgroup.Group
	ctx   context.Context // of Reconcile; a reconciler does not outlive it
}

func (r *reconciler) rule(gvr schema.GroupVersionResource, want reconciliation.RuleOwner, get func() (reconciliation.RuleOwner, error)) {
	options := reconciliation.ReconcileRoleOptions{Role: want, Client: ruleReader{get: get}}
	result, err := options.Run()
	if err != nil || result.Protected {
		r.fail(gvr, want.GetName(), err)
		return
	}
	r.write(gvr, result.Operation, result.Role.GetObject(), func() (runtime.Object, error) {
		old, err := get()
		return old.GetObject(), err
	})
}

func (r *reconciler) binding(gvr schema.GroupVersionResource, want reconciliation.RoleBinding, get func() (reconciliation.RoleBinding, error)) {
	options := reconciliation.ReconcileRoleBindingOptions{RoleBinding: want, Client: bindingReader{get: get}}
	result, err := options.Run()
	if err != nil || result.Protected {
		r.fail(gvr, want.GetName(), err)
		return
	}
	r.write(gvr, result.Operation, result.RoleBinding.GetObject(), func() (runtime.Object, error) {
		old, err := get()
		return old.GetObject(), err
	})
}

func (r *reconciler) fail(gvr schema.GroupVersionResource, name string, err error) {
	if err != nil {
		r.group.Go(func() error { return fmt.Errorf("reconcile %s %s: %w", gvr.Resource, name, err) })
	}
}

// write performs what the library decided. A binding to another role under a default
// name stays: a binding's role cannot be changed, and a person may have made it on purpose.
func (r *reconciler) write(gvr schema.GroupVersionResource, what reconciliation.ReconcileOperation, obj runtime.Object, old func() (runtime.Object, error)) {
	if what == reconciliation.ReconcileNone {
		return
	}
	r.group.Go(func() error {
		var err error
		switch what {
		case reconciliation.ReconcileCreate:
			err = r.w.Create(r.ctx, gvr, obj.DeepCopyObject())
		case reconciliation.ReconcileUpdate:
			var was runtime.Object
			if was, err = old(); err == nil {
				err = r.w.Update(r.ctx, gvr, obj.DeepCopyObject(), was)
			}
		default:
			r.log.Warn("a default binding refers to another role and is left as it is", "resource", gvr.Resource, "object", fmt.Sprint(obj))
		}
		if object.Is(err, object.AlreadyExists) || object.Is(err, object.Conflict) || object.Is(err, object.NotFound) || object.Is(err, object.BeingDeleted) {
			return nil // another replica was first
		}
		if err != nil {
			return fmt.Errorf("write default %s: %w", gvr.Resource, err)
		}
		return nil
	})
}

// ruleReader and bindingReader let the library read. It runs dry, so it calls no method that
// writes: they have none.
type ruleReader struct {
	reconciliation.RuleOwnerModifier
	get func() (reconciliation.RuleOwner, error)
}

func (r ruleReader) Get(string, string) (reconciliation.RuleOwner, error) { return r.get() }

type bindingReader struct {
	reconciliation.RoleBindingModifier
	get func() (reconciliation.RoleBinding, error)
}

func (r bindingReader) Get(string, string) (reconciliation.RoleBinding, error) { return r.get() }
