// Package accesstest gives tests a front door and clients. Nothing of it is in the
// server.
package accesstest

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/policy"
	"github.com/exeunt/exeunt/access/rbac"
)

// Door returns a front door with the default roles, which follows no store.
func Door() *access.Door { return access.NewDoor(directory.Of(Objects())) }

// Objects are the default roles and bindings.
func Objects() rbac.Objects {
	d := policy.Default()
	o := rbac.Objects{
		Roles: map[types.NamespacedName]*rbacv1.Role{}, ClusterRoles: d.ClusterRoles,
		RoleBindings: map[types.NamespacedName]*rbacv1.RoleBinding{}, ClusterRoleBindings: map[string]*rbacv1.ClusterRoleBinding{},
	}
	for _, r := range d.Roles {
		o.Roles[types.NamespacedName{Namespace: r.Namespace, Name: r.Name}] = r
	}
	for _, b := range d.RoleBindings {
		o.RoleBindings[types.NamespacedName{Namespace: b.Namespace, Name: b.Name}] = b
	}
	for _, b := range d.ClusterRoleBindings {
		o.ClusterRoleBindings[b.Name] = b
	}
	return o
}

// As makes a request come from a client with a certificate.
func As(req *http.Request, name string, groups ...string) *http.Request {
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: groups}, NotAfter: time.Now().Add(time.Hour)}
	req.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
	return req
}

// Admin makes a request come from an administrator called tester.
func Admin(req *http.Request) *http.Request { return As(req, "tester", "system:masters") }
