package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/rbac"
	v1 "github.com/exeunt/exeunt/access/v1"
)

// readsOne are the rules of the ClusterRole reader, which exists and is bound to nobody.
var readsOne = []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"one"}}}

// holding returns a control whose user jane holds rights: "VERB GROUP RESOURCE NAME" in all
// namespaces, or with a fifth word in that one. The core group is "-", and all names are "*".
func holding(rights []string) *Control {
	o := rbac.Objects{
		Roles: map[types.NamespacedName]*rbacv1.Role{}, ClusterRoles: map[string]*rbacv1.ClusterRole{"reader": {Rules: readsOne}},
		RoleBindings: map[types.NamespacedName]*rbacv1.RoleBinding{}, ClusterRoleBindings: map[string]*rbacv1.ClusterRoleBinding{},
	}
	jane := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "jane"}}
	for _, right := range rights {
		f := strings.Fields(right)
		rules := []rbacv1.PolicyRule{{Verbs: f[:1], APIGroups: []string{strings.TrimPrefix(f[1], "-")}, Resources: f[2:3], ResourceNames: f[3:4]}}
		if f[3] == "*" {
			rules[0].ResourceNames = nil
		}
		if len(f) == 4 {
			o.ClusterRoles[right] = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: right}, Rules: rules}
			o.ClusterRoleBindings[right] = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: right}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: right}, Subjects: jane}
			continue
		}
		key := types.NamespacedName{Namespace: f[4], Name: right}
		meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
		o.Roles[key] = &rbacv1.Role{ObjectMeta: meta, Rules: rules}
		o.RoleBindings[key] = &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: right}, Subjects: jane}
	}
	return NewControl(directory.Of(o), Config{})
}

// confirmed marks a write that Confirms, hastened one that Hastens, and expiring one of a policy of Secrets.
const confirmed, hastened, expiring = "example.com/confirmed", "example.com/hastened", "example.com/expiring"

func configMap(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"}}
	change(c)
	return c
}

func owned(refs ...metav1.OwnerReference) *corev1.ConfigMap {
	return configMap(func(c *corev1.ConfigMap) { c.OwnerReferences = refs })
}

// owner is a reference to KIND of APIVERSION; the uid is the name. A flag may be b, for
// blocking, or c, for controller.
func owner(apiVersion, kind, name, flags string) metav1.OwnerReference {
	r := metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name)}
	if yes := true; strings.Contains(flags, "b") {
		r.BlockOwnerDeletion = &yes
	}
	if yes := true; strings.Contains(flags, "c") {
		r.Controller = &yes
	}
	return r
}

func finalized(by ...string) *corev1.ConfigMap {
	return configMap(func(c *corev1.ConfigMap) { c.Finalizers = by })
}

// job is annotated with what is one of the marks, and else has it as its finalizer.
func job(what string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "j"}}
	switch what {
	case "":
	case hastened, weaker:
		j.Annotations = map[string]string{what: ""}
	default:
		j.Finalizers = []string{what}
	}
	return j
}

func annotated(key string) *corev1.ConfigMap {
	return configMap(func(c *corev1.ConfigMap) { c.Annotations = map[string]string{key: ""} })
}

func userOf(name string, groups ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
	if err := unstructured.SetNestedStringSlice(u.Object, groups, "spec", "groups"); err != nil {
		panic(err) // a bug of the test
	}
	return u
}

// signingRequest has a subject in the given groups, a certificate unless it is empty, and
// conditions.
func signingRequest(t *testing.T, signer string, groups []string, certificate string, conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "x", Organization: groups}}, key)
	if err != nil {
		t.Fatal(err)
	}
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: signer, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
	}}
	if certificate != "" {
		r.Status.Certificate = []byte(certificate)
	}
	for _, c := range conditions {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c, Status: corev1.ConditionTrue})
	}
	return r
}

// weaker is an annotation that makes a guard weaker, in these tests.
const weaker = "weaker"

func podCertificate(signer, chain string) *certificatesv1.PodCertificateRequest {
	r := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r"}}
	r.Spec.SignerName, r.Status.CertificateChain = signer, chain
	return r
}

func trustBundle(signer, roots string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: roots}}
}

// TestCheckWrite: what the content of a write needs, it needs: each set of rights that is
// named is enough, and all other rights together are not.
func TestCheckWrite(t *testing.T) {
	const (
		deletes    = "delete - configmaps c shop"
		finalizes  = "update - configmaps/finalizers c shop"
		blocks     = "update - configmaps/finalizers o shop"
		blocksP    = "update - configmaps/finalizers p shop"
		blocksNode = "update - nodes/finalizers o"
		blocksOdd  = "update example.com */finalizers o shop"
		confirms   = "confirm-cascade - configmaps c shop"
		asRoot     = "impersonate - users root"
		inOps      = "impersonate - groups ops"
		inMasters  = "impersonate - groups system:masters"
		reads      = "get - secrets one shop"
		escalates  = "escalate rbac.authorization.k8s.io roles r shop"
		binds      = "bind rbac.authorization.k8s.io clusterroles reader shop"
		client     = certificatesv1.KubeAPIServerClientSignerName
		approves   = "approve certificates.k8s.io signers " + client
		approvesK  = "approve certificates.k8s.io signers kubernetes.io/*"
		signs      = "sign certificates.k8s.io signers " + client
		signsK     = "sign certificates.k8s.io signers kubernetes.io/*"
		attests    = "attest certificates.k8s.io signers " + client
		sweeps     = "delete - secrets * shop"
		lists      = "list - secrets * shop"
		sweepsJobs = "delete batch jobs * shop"
		listsJobs  = "list batch jobs * shop"
		finishJob  = "update batch jobs/finalizers j shop"
		confirmJob = "confirm-cascade batch jobs j shop"
		attestsK   = "attest certificates.k8s.io signers kubernetes.io/*"
		never      = "never" // no right is enough
	)
	approved, denied, failed := certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	o, ob, oc := owner("v1", "ConfigMap", "o", ""), owner("v1", "ConfigMap", "o", "b"), owner("v1", "ConfigMap", "o", "c")
	p, pb := owner("v1", "ConfigMap", "p", ""), owner("v1", "ConfigMap", "p", "b")
	no := false
	unblocked := o
	unblocked.BlockOwnerDeletion = &no
	freed := o
	freed.Controller = &no
	renamed, renamedB, other, later := o, ob, o, ob
	renamed.Name, renamedB.Name, other.UID, later.APIVersion = "q", "p", "q", "v2"
	plain := configMap(func(*corev1.ConfigMap) {})
	pending := signingRequest(t, client, nil, "")
	with := func(certificate string, conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
		r := signingRequest(t, client, nil, certificate, conditions...)
		r.Spec = pending.Spec
		return r
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r"}, Rules: readsOne}
	emptyRole := &rbacv1.Role{ObjectMeta: role.ObjectMeta}
	none := [][]string{{}}
	one := func(rights ...string) [][]string { return [][]string{rights} }
	rows := []struct {
		name string
		old  runtime.Object // nil means a create
		now  runtime.Object
		// enough are sets of rights of which each is enough.
		enough [][]string
	}{
		{"create", nil, plain, none},
		{"create with a finalizer", nil, finalized("a/b"), none},
		{"create with an owner", nil, owned(o, p), none},
		{"create that blocks its owner", nil, owned(ob, p), one(blocks)},
		{"create that blocks two owners", nil, owned(ob, pb), one(blocks, blocksP)},
		{"create that blocks a node", nil, owned(owner("v1", "Node", "o", "b")), one(blocksNode)},
		{"create that blocks an owner of a kind that is not served", nil, owned(owner("example.com/v1", "Widget", "o", "b")), one(blocksOdd)},
		{"create that blocks an owner of an invalid version", nil, owned(owner("a/b/c", "Widget", "o", "b")), none},
		{"create that confirms", nil, annotated(confirmed), one(confirms)},
		{"change of data", plain, configMap(func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": "b"} }), none},
		{"add an owner", plain, owned(o), one(deletes)},
		{"remove an owner", owned(o), plain, one(deletes)},
		{"replace an owner", owned(o), owned(p), one(deletes)},
		{"rename an owner", owned(o), owned(renamed), one(deletes)},
		{"rename a blocking owner", owned(ob), owned(renamedB), one(deletes, blocksP)},
		{"a blocking owner turns out to be of another version", owned(ob), owned(later), one(deletes, blocks)},
		{"an owner of that name is another one", owned(o), owned(other), one(deletes)},
		{"controller: false for nothing", owned(o), owned(freed), none},
		{"no owners for none", owned(), configMap(func(c *corev1.ConfigMap) { c.OwnerReferences = []metav1.OwnerReference{} }), none},
		{"an owner becomes the controller", owned(o), owned(oc), one(deletes)},
		{"owners in another order", owned(o, p), owned(p, o), none},
		{"blockOwnerDeletion: false for nothing", owned(o), owned(unblocked), none},
		{"an owner that is there becomes blocking", owned(o), owned(ob), one(deletes, blocks)},
		{"a blocking owner no longer is", owned(ob), owned(o), one(deletes)},
		{"a blocking owner stays, another comes", owned(ob), owned(ob, p), one(deletes)},
		{"a blocking owner turns out to be of another kind", owned(ob), owned(owner("v1", "Node", "o", "b")), one(deletes, blocksNode)},
		{"a blocking owner, under the uid of another", owned(ob), owned(ob, owner("v1", "Node", "o", "b")), one(deletes, blocksNode)},
		{"a blocking owner stays, another becomes blocking", owned(ob, p), owned(ob, pb), one(deletes, blocksP)},
		{"add a finalizer", plain, finalized("a/b"), one(finalizes)},
		{"remove a finalizer", finalized("a/b"), plain, one(finalizes)},
		{"replace a finalizer", finalized("a/b", "c/d"), finalized("a/b", "e/f"), one(finalizes)},
		{"finalizers stay", finalized("a/b"), finalized("a/b"), none},
		{"confirm", plain, annotated(confirmed), one(confirms)},
		{"expire earlier", plain, annotated(hastened), one(deletes)},
		{"create what expires", nil, annotated(hastened), one(deletes)},
		{"a policy of expiry", nil, annotated(expiring), one(sweeps, lists, sweepsJobs, listsJobs)},
		{"a finalizer of an object of a group", job(""), job("a/b"), one(finishJob)},
		{"a weaker guard of an object of a group", job(""), job(weaker), one(confirmJob)},
		{"a weaker guard", plain, annotated(weaker), one(confirms)},
		{"an owner, a finalizer and a confirmation", plain, configMap(func(c *corev1.ConfigMap) {
			c.OwnerReferences, c.Finalizers, c.Annotations = []metav1.OwnerReference{ob}, []string{"a/b"}, map[string]string{confirmed: ""}
		}), one(deletes, blocks, finalizes, confirms)},
		{"a User", nil, userOf("root"), one(asRoot)},
		{"a User in groups", nil, userOf("root", "ops", "system:masters"), one(asRoot, inOps, inMasters)},
		{"a token for a User in a group", userOf("root", "ops"), userOf("root", "ops"), one(asRoot, inOps)},
		{"a User leaves a group", userOf("root", "ops"), userOf("root"), one(asRoot)},
		{"a role", nil, role, [][]string{{reads}, {escalates}}},
		{"a role gets a rule", emptyRole, role, [][]string{{reads}, {escalates}}},
		{"a role loses its rules", role, emptyRole, none},
		{"a binding", nil, &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"}}, [][]string{{reads}, {binds}}},
		{"a request for a certificate", nil, pending, none},
		{"a request for the group of administrators", nil, signingRequest(t, client, []string{"ops", "system:masters"}, ""), one(never)},
		{"a request for it, of another signer", nil, signingRequest(t, "example.com/s", []string{"system:masters"}, ""), none},
		{"approve", pending, with("", approved), [][]string{{approves}, {approvesK}}},
		{"deny", pending, with("", denied), [][]string{{approves}, {approvesK}}},
		{"withdraw an approval", with("", approved), pending, [][]string{{approves}, {approvesK}}},
		{"set the certificate", with("", approved), with("x", approved), [][]string{{signs}, {signsK}}},
		{"change the certificate", with("x", approved), with("y", approved), [][]string{{signs}, {signsK}}},
		{"remove the certificate", with("x", approved), with("", approved), [][]string{{signs}, {signsK}}},
		{"mark as failed", with("", approved), with("", approved, failed), [][]string{{signs}, {signsK}}},
		{"approve and set the certificate", pending, with("x", approved), [][]string{{approves, signs}, {approvesK, signsK}, {approves, signsK}, {approvesK, signs}}},
		{"issue a pod's certificate", podCertificate(client, ""), podCertificate(client, "x"), [][]string{{signs}, {signsK}}},
		{"a pod's request for a certificate", nil, podCertificate(client, ""), none},
		{"a pod's certificate stays", podCertificate(client, "x"), podCertificate(client, "x"), none},
		{"the roots of a signer", nil, trustBundle(client, "x"), [][]string{{attests}, {attestsK}}},
		{"other roots of a signer", trustBundle(client, "x"), trustBundle(client, "y"), [][]string{{attests}, {attestsK}}},
		{"the roots of a signer stay", trustBundle(client, "x"), trustBundle(client, "x"), none},
		{"roots of no signer", nil, trustBundle("", "x"), none},
		{"a signed request stays", with("x", approved), with("x", approved), none},
	}
	var all []string
	for _, row := range rows {
		for _, set := range row.enough {
			all = append(all, set...)
		}
	}
	all = slices.DeleteFunc(all, func(right string) bool { return right == never })
	for _, right := range slices.Clone(all) { // the same in another namespace, and for another object
		f := strings.Fields(right)
		elsewhere := map[int]string{4: "shop", 5: "other"}[len(f)]
		all = append(all, strings.Join(append(slices.Clone(f[:4]), elsewhere), " "), strings.Join(slices.Concat(f[:3], []string{f[3] + "x"}, f[4:]), " "))
	}
	for _, row := range rows {
		for _, set := range row.enough {
			if slices.Contains(set, never) {
				continue
			}
			if err := holding(set).CheckWrite(t.Context(), writeOf(row.now, row.old)); err != nil {
				t.Errorf("%s with %q: %v", row.name, set, err)
			}
		}
		for _, missing := range choices(row.enough) {
			others := slices.DeleteFunc(slices.Clone(all), func(right string) bool { return slices.Contains(missing, right) })
			if err := holding(others).CheckWrite(t.Context(), writeOf(row.now, row.old)); !apierrors.IsForbidden(err) {
				t.Errorf("%s without %q, with all others: %v", row.name, missing, err)
			}
		}
	}
}

// choices returns all ways to take one right from each set; none if a set is empty.
func choices(sets [][]string) [][]string {
	all := [][]string{{}}
	for _, set := range sets {
		var next [][]string
		for _, taken := range all {
			for _, right := range set {
				next = append(next, append(slices.Clone(taken), right))
			}
		}
		all = next
	}
	return all
}

func writeOf(now, old runtime.Object) Write {
	w := Write{
		Client: &user.DefaultInfo{Name: "jane"}, Object: now, Meta: now.(metav1.Object),
		Owner: func(k schema.GroupVersionKind) (r schema.GroupVersionResource, namespaced, served bool) {
			return k.GroupVersion().WithResource(strings.ToLower(k.Kind) + "s"), k.Kind != "Node", k.Group == ""
		},
	}
	_, w.Confirms = w.Meta.GetAnnotations()[confirmed]
	_, w.Hastens = w.Meta.GetAnnotations()[hastened]
	if _, ok := w.Meta.GetAnnotations()[expiring]; ok {
		w.Expires = []schema.GroupResource{{Resource: "secrets"}, {Group: "batch", Resource: "jobs"}}
	}
	_, w.Weakens = w.Meta.GetAnnotations()[weaker]
	if old != nil {
		w.Old, w.OldMeta = old, old.(metav1.Object)
	}
	switch now.(type) {
	case *corev1.ConfigMap:
		w.Resource = corev1.SchemeGroupVersion.WithResource("configmaps")
	case *batchv1.Job:
		w.Resource = batchv1.SchemeGroupVersion.WithResource("jobs")
	case *unstructured.Unstructured:
		w.Resource = v1.Users
	case *certificatesv1.CertificateSigningRequest:
		w.Resource = certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")
	case *certificatesv1.PodCertificateRequest:
		w.Resource = certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests")
	case *certificatesv1.ClusterTrustBundle:
		w.Resource = certificatesv1.SchemeGroupVersion.WithResource("clustertrustbundles")
	case *rbacv1.Role:
		w.Resource = rbacv1.SchemeGroupVersion.WithResource("roles")
	case *rbacv1.RoleBinding:
		w.Resource = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
	default:
		panic(fmt.Sprintf("no resource for %T", now)) // a bug of the test
	}
	return w
}
