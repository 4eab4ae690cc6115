// Package accesstest gives tests an access control and clients. Nothing of it is in the
// server.
package accesstest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"maps"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/policy"
	"github.com/exeunt/exeunt/access/rbac"
)

// Control returns an access control with the default roles and further grants, which follows no
// store. A grant is "USER ROLE" or "USER ROLE NAMESPACE".
func Control(grants ...string) *access.Control {
	o := Objects()
	for _, grant := range grants {
		fields := strings.Fields(grant)
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fields[1]}
		subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: fields[0]}}
		if len(fields) == 2 {
			o.ClusterRoleBindings[grant] = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: grant}, RoleRef: ref, Subjects: subjects}
			continue
		}
		key := types.NamespacedName{Namespace: fields[2], Name: grant}
		o.RoleBindings[key] = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, RoleRef: ref, Subjects: subjects}
	}
	return access.NewControl(directory.Of(o), access.Config{})
}

// Objects are the default roles and bindings.
func Objects() rbac.Objects {
	d := policy.Default()
	return rbac.Objects{
		Roles: maps.Clone(d.Roles), ClusterRoles: maps.Clone(d.ClusterRoles),
		RoleBindings: maps.Clone(d.RoleBindings), ClusterRoleBindings: maps.Clone(d.ClusterRoleBindings),
	}
}

// As makes a request come from a client with a certificate.
func As(req *http.Request, name string, groups ...string) *http.Request {
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: groups}, NotAfter: time.Now().Add(time.Hour)}
	req.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
	return req
}

// Admin makes a request come from an administrator called tester.
func Admin(req *http.Request) *http.Request { return As(req, "tester", "system:masters") }

// NoAdmission is an api.Admission without webhooks and policies.
type NoAdmission struct{}

func (NoAdmission) Handles(admission.Operation) bool { return false }

func (NoAdmission) Complete(context.Context, string, runtime.Object) error { return nil }

func (NoAdmission) Judges(schema.GroupResource, admission.Operation) []string { return nil }

func (NoAdmission) Judge(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return nil
}

func (NoAdmission) Pretend(context.Context, *corev1.Namespace) {}

func (NoAdmission) SelectsIn(string, schema.GroupResource, admission.Operation) bool { return false }

func (NoAdmission) Selects(schema.GroupResource, string, admission.Operation) bool { return false }
