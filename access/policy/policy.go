// Package policy holds the default roles and bindings (policy.yaml), creates and
// updates them at every start, and keeps aggregated ClusterRoles up to date. An object
// with the annotation rbac.authorization.kubernetes.io/autoupdate "false" is left alone.
//
// It does not decide (access/rbac), and it does not follow the store (access/directory).
package policy

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/access/rbac"
)

//go:embed policy.yaml
var policyYAML []byte

// file is policy.yaml.
type file struct {
	ClusterRoles map[string]struct {
		Aggregates, AggregatesTo []string
		Rules                    []string
	}
	Quiet               []string
	Controllers         map[string][]string
	ClusterRoleBindings map[string][]string
	Roles               map[string]struct{ Rules, Subjects []string }
}

// Defaults are the default roles and bindings. Aggregated roles have their rules.
type Defaults struct {
	ClusterRoles        map[string]*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// Default returns the default policy. Do not change it.
var Default = sync.OnceValue(func() *Defaults {
	d, err := parse(policyYAML)
	if err != nil {
		panic(fmt.Sprintf("default policy: %v", err)) // the input is constant: one test call proves it
	}
	return d
})

const (
	labelPrefix  = "rbac.authorization.k8s.io/aggregate-to-"
	eventsRule   = "core events.k8s.io | events | create patch update"
	controllerOf = "system:controller:"
)

func parse(data []byte) (*Defaults, error) {
	var f file
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return nil, err
	}
	d := &Defaults{ClusterRoles: map[string]*rbacv1.ClusterRole{}}
	for name, r := range f.ClusterRoles {
		role, err := clusterRole(name, r.Rules)
		if err != nil {
			return nil, err
		}
		for _, to := range r.AggregatesTo {
			role.Labels[labelPrefix+to] = "true"
		}
		for _, label := range r.Aggregates {
			role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{labelPrefix + label: "true"}}}}
		}
		d.ClusterRoles[name] = role
	}
	for name, rules := range f.Controllers {
		if !slices.Contains(f.Quiet, name) {
			rules = append(rules, eventsRule)
		}
		role, err := clusterRole(controllerOf+name, rules)
		if err != nil {
			return nil, err
		}
		d.ClusterRoles[role.Name] = role
		d.ClusterRoleBindings = append(d.ClusterRoleBindings, clusterBinding(role.Name, []string{"serviceaccount kube-system/" + name}))
	}
	for name, subjects := range f.ClusterRoleBindings {
		d.ClusterRoleBindings = append(d.ClusterRoleBindings, clusterBinding(name, subjects))
	}
	d.aggregate()
	return d, d.addRoles(f)
}

func (d *Defaults) addRoles(f file) error {
	for key, r := range f.Roles {
		namespace, name, _ := strings.Cut(key, "/")
		rules, err := parseRules(r.Rules)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		m := defaultMeta(name)
		m.Namespace = namespace
		d.Roles = append(d.Roles, &rbacv1.Role{ObjectMeta: *m.DeepCopy(), Rules: rules})
		d.RoleBindings = append(d.RoleBindings, &rbacv1.RoleBinding{
			ObjectMeta: m, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: parseSubjects(r.Subjects),
		})
	}
	return nil
}

// aggregate fills the aggregated roles. Some aggregate others that are aggregated, so
// it repeats until nothing changes; three levels exist.
func (d *Defaults) aggregate() {
	for range 3 {
		for _, r := range d.ClusterRoles {
			if rules, ok := rbac.Aggregate(r, d.ClusterRoles); ok {
				r.Rules = rules
			}
		}
	}
}

func defaultMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
}

func clusterRole(name string, lines []string) (*rbacv1.ClusterRole, error) {
	rules, err := parseRules(lines)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &rbacv1.ClusterRole{ObjectMeta: defaultMeta(name), Rules: rules}, nil
}

func clusterBinding(role string, subjects []string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: defaultMeta(role),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   parseSubjects(subjects),
	}
}

// parseRules reads "groups | resources | verbs | names" and "path | paths | verbs".
func parseRules(lines []string) ([]rbacv1.PolicyRule, error) {
	rules := []rbacv1.PolicyRule{}
	for _, line := range lines {
		var parts [][]string
		for _, part := range strings.Split(line, "|") {
			parts = append(parts, strings.Fields(part))
		}
		if len(parts) < 3 || len(parts) > 4 || slices.ContainsFunc(parts, func(p []string) bool { return len(p) == 0 }) {
			return nil, fmt.Errorf("rule %q: want groups | resources | verbs | names", line)
		}
		if parts[0][0] == "path" {
			rules = append(rules, rbacv1.PolicyRule{NonResourceURLs: parts[1], Verbs: parts[2]})
			continue
		}
		r := rbacv1.PolicyRule{APIGroups: parts[0], Resources: parts[1], Verbs: parts[2]}
		for i, group := range r.APIGroups {
			if group == "core" {
				r.APIGroups[i] = ""
			}
		}
		if len(parts) == 4 {
			r.ResourceNames = parts[3]
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parseSubjects(texts []string) (subjects []rbacv1.Subject) {
	for _, text := range texts {
		kind, name, _ := strings.Cut(text, " ")
		switch kind {
		case "group":
			subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name})
		case "user":
			subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name})
		case "serviceaccount":
			namespace, account, _ := strings.Cut(name, "/")
			subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account})
		default:
			panic("default policy: subject " + text) // the input is constant: one test call proves it
		}
	}
	return subjects
}
