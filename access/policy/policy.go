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

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
