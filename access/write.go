package access

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/exeunt/exeunt/access/signing"
)

// Write is a create or an update whose request is authorized already. Some of its
// content needs further rights.
type Write struct {
	Client   user.Info
	Resource schema.GroupVersionResource
	Meta     metav1.Object
	Object   runtime.Object
	OldMeta  metav1.Object // nil means a create
	Old      runtime.Object
	// Owner returns the resource of an owner's kind and whether it is namespaced; false
	// for a kind that is not served.
	Owner func(schema.GroupVersionKind) (r schema.GroupVersionResource, namespaced, served bool)
	// Confirms: the write lets a cascade pass that the guard would hold, an immutable tag go, or a retention or expiry begin.
	Confirms bool
	// Weakens: the write makes the guard of a Namespace weaker, or tags of a Repository mutable.
	Weakens bool
	// Hastens: the write makes the object expire, or expire earlier.
	Hastens bool
	// Expires are the resources whose objects the write lets expire: it changes or starts a policy of expiry.
	Expires []schema.GroupResource
}

// CheckWrite refuses a write whose content needs rights that the client lacks:
//   - roles and bindings grant only what the client holds (rbac.CheckGrant);
//   - changing ownerReferences needs delete on the object, because it may end its life;
//   - setting blockOwnerDeletion needs update on the owner's finalizers, because it may
//     keep the owner alive;
//   - changing finalizers needs update on the object's own finalizers;
//   - a User's tokens are only for clients that may impersonate the user and its groups;
//   - approving a CertificateSigningRequest needs approve on its signer, setting a
//     certificate sign, naming a signer's roots attest (checkSigning);
//   - making an object expire needs delete on it;
//   - what a policy of expiry selects, or its start, needs delete and list on its resources;
//   - confirming a guarded cascade or the end of an immutable tag, or making the guard of a
//     Namespace weaker or tags mutable, needs confirm-cascade on the object.
//
// A create may set ownerReferences and finalizers: the object is the client's own.
func (c *Control) CheckWrite(ctx context.Context, w Write) error {
	if err := c.CheckGrant(ctx, w.Client, w.Object, w.Old); err != nil {
		return err
	}
	if err := c.checkUser(ctx, w); err != nil {
		return err
	}
	if err := c.checkSigning(ctx, w); err != nil {
		return err
	}
	var owners []metav1.OwnerReference
	var finalizers []string
	if w.OldMeta != nil {
		owners, finalizers = w.OldMeta.GetOwnerReferences(), w.OldMeta.GetFinalizers()
	}
	if now := w.Meta.GetOwnerReferences(); !sameOwners(now, owners) {
		if w.OldMeta != nil {
			if err := c.needOf(ctx, w, w.attributes("delete", ""), "cannot set an ownerRef on a resource you can't delete"); err != nil {
				return err
			}
		}
		if err := c.checkBlocking(ctx, w, newlyBlocking(now, owners)); err != nil {
			return err
		}
	}
	if w.OldMeta != nil && !slices.Equal(w.Meta.GetFinalizers(), finalizers) {
		if err := c.need(ctx, w.attributes("update", "finalizers"), "cannot change finalizers"); err != nil {
			return err
		}
	}
	if w.Hastens {
		if err := c.need(ctx, w.attributes("delete", ""), "cannot make an object expire that you cannot delete"); err != nil {
			return err
		}
	}
	if err := c.checkExpiry(ctx, w); err != nil {
		return err
	}
	if w.Weakens {
		return c.need(ctx, w.attributes("confirm-cascade", ""), "cannot make its guard weaker")
	}
	if w.Confirms {
		return c.need(ctx, w.attributes("confirm-cascade", ""), "cannot confirm its cascade, tags, retention or expiry")
	}
	return nil
}

// checkExpiry refuses a policy of expiry of a client that cannot delete what the policy may select: it is the client's
// delete, only later. A policy also counts what it selects, so the client must be able to list that.
func (c *Control) checkExpiry(ctx context.Context, w Write) error {
	for _, of := range w.Expires {
		for _, verb := range []string{"delete", "list"} {
			a := authorizer.AttributesRecord{
				User: w.Client, Verb: verb, ResourceRequest: true, APIGroup: of.Group, APIVersion: "*", Resource: of.Resource, Namespace: w.Meta.GetNamespace(),
			}
			if err := c.need(ctx, a, "cannot let objects expire that you cannot delete and list"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Write) attributes(verb, subresource string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: w.Client, Verb: verb, ResourceRequest: true,
		APIGroup: w.Resource.Group, APIVersion: w.Resource.Version, Resource: w.Resource.Resource, Subresource: subresource,
		Namespace: w.Meta.GetNamespace(), Name: w.Meta.GetName(),
	}
}

// need returns a denial in Kubernetes' words unless the client may.
func (c *Control) need(ctx context.Context, a authorizer.AttributesRecord, why string) error {
	decision, _, err := c.authz.Authorize(ctx, a)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return err
	}
	return responsewriters.ForbiddenStatusError(a, why)
}

// needOf is need, with the text by which clients know the refusals of OwnerReferencesPermissionEnforcement.
func (c *Control) needOf(ctx context.Context, w Write, a authorizer.AttributesRecord, text string) error {
	err := c.need(ctx, a, "")
	if !apierrors.IsForbidden(err) {
		return err
	}
	_, missing, _ := strings.Cut(err.Error(), " is forbidden: ")
	return apierrors.NewForbidden(w.Resource.GroupResource(), w.Meta.GetName(), fmt.Errorf("%s: %s", text, missing))
}

func (c *Control) checkBlocking(ctx context.Context, w Write, refs []metav1.OwnerReference) error {
	for _, ref := range refs {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil {
			continue // validation refuses it
		}
		a := w.attributes("update", "finalizers")
		a.APIGroup, a.APIVersion, a.Resource, a.Name = gv.Group, gv.Version, "*", ref.Name
		// An owner of a kind that is not served may be of any resource.
		text := fmt.Sprintf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s", ref.APIVersion, ref.Kind)
		if r, namespaced, served := w.Owner(gv.WithKind(ref.Kind)); served {
			text = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"
			a.Resource = r.Resource
			if !namespaced {
				a.Namespace = ""
			}
		}
		if err := c.needOf(ctx, w, a, text); err != nil {
			return err
		}
	}
	return nil
}

func isBlocking(r metav1.OwnerReference) bool {
	return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
}

// newlyBlocking returns the references that block their owner and did not before.
func newlyBlocking(now, old []metav1.OwnerReference) (refs []metav1.OwnerReference) {
	for _, r := range now {
		blocked := slices.ContainsFunc(old, func(o metav1.OwnerReference) bool {
			// A uid alone would be of any kind: the right was asked for on another one.
			return o.UID == r.UID && o.APIVersion == r.APIVersion && o.Kind == r.Kind && o.Name == r.Name && isBlocking(o)
		})
		if isBlocking(r) && !blocked {
			refs = append(refs, r)
		}
	}
	return refs
}

// sameOwners compares references regardless of their order.
func sameOwners(a, b []metav1.OwnerReference) bool {
	if len(a) == 0 && len(b) == 0 {
		return true
	}
	byUID := func(x, y metav1.OwnerReference) int { return cmp.Compare(x.UID, y.UID) }
	same := func(x, y metav1.OwnerReference) bool {
		return x.APIVersion == y.APIVersion && x.Kind == y.Kind && x.Name == y.Name && x.UID == y.UID &&
			isBlocking(x) == isBlocking(y) && isController(x) == isController(y)
	}
	return slices.EqualFunc(slices.SortedFunc(slices.Values(a), byUID), slices.SortedFunc(slices.Values(b), byUID), same)
}

func isController(r metav1.OwnerReference) bool { return r.Controller != nil && *r.Controller }

// SetRequestor writes into a new CertificateSigningRequest who asks for the certificate,
// and whether that is a User. Clients cannot: the strategy has cleared the fields.
func (c *Control) SetRequestor(client user.Info, obj runtime.Object) {
	r, ok := obj.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return
	}
	r.Spec.Username, r.Spec.UID, r.Spec.Groups = client.GetName(), client.GetUID(), client.GetGroups()
	r.Spec.Extra = map[string]certificatesv1.ExtraValue{}
	for key, value := range client.GetExtra() {
		r.Spec.Extra[key] = value
	}
	delete(r.Spec.Extra, signing.UserKey)
	if uid, isUser := strings.CutPrefix(c.Remember(client).GetUID(), UserUIDPrefix); isUser {
		r.Spec.Extra[signing.UserKey] = certificatesv1.ExtraValue{uid}
	}
}

// checkSigning decides on what certificates are made of, as admission plugins and strategies of
// Kubernetes do: no CertificateSigningRequest for system:masters by the signer of clients; to
// approve or deny it needs the verb approve on the signer, to set the certificate sign; the
// status of a PodCertificateRequest needs sign, and the roots of a signer's ClusterTrustBundle
// attest.
func (c *Control) checkSigning(ctx context.Context, w Write) error {
	switch obj := w.Object.(type) {
	case *certificatesv1.CertificateSigningRequest:
		return c.checkRequest(ctx, w, obj)
	case *certificatesv1.PodCertificateRequest:
		old, _ := w.Old.(*certificatesv1.PodCertificateRequest)
		if old != nil && !equality.Semantic.DeepEqual(obj.Status, old.Status) {
			return c.needSigner(ctx, w, "sign", obj.Spec.SignerName)
		}
	case *certificatesv1.ClusterTrustBundle:
		old, _ := w.Old.(*certificatesv1.ClusterTrustBundle)
		if obj.Spec.SignerName != "" && (old == nil || !equality.Semantic.DeepEqual(obj.Spec, old.Spec)) {
			return c.needSigner(ctx, w, "attest", obj.Spec.SignerName)
		}
	}
	return nil
}

func (c *Control) checkRequest(ctx context.Context, w Write, r *certificatesv1.CertificateSigningRequest) error {
	old, ok := w.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		if err := signing.CheckSubject(r); err != nil {
			return apierrors.NewForbidden(w.Resource.GroupResource(), r.Name, err)
		}
		return nil
	}
	of := func(r *certificatesv1.CertificateSigningRequest, approval bool) (out []certificatesv1.CertificateSigningRequestCondition) {
		for _, c := range r.Status.Conditions {
			if is := c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied; is == approval {
				out = append(out, c)
			}
		}
		return out
	}
	if !equality.Semantic.DeepEqual(of(r, true), of(old, true)) {
		if err := c.needSigner(ctx, w, "approve", r.Spec.SignerName); err != nil {
			return err
		}
	}
	if !equality.Semantic.DeepEqual(of(r, false), of(old, false)) || !bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		return c.needSigner(ctx, w, "sign", r.Spec.SignerName)
	}
	return nil
}

// needSigner requires a verb on a signer, DOMAIN/NAME, or on all signers of its domain,
// DOMAIN/*.
func (c *Control) needSigner(ctx context.Context, w Write, verb, signer string) error {
	a := authorizer.AttributesRecord{
		User: w.Client, Verb: verb, ResourceRequest: true,
		APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers", Name: signer,
	}
	domain, _, _ := strings.Cut(signer, "/")
	wildcard := a
	wildcard.Name = domain + "/*"
	if decision, _, err := c.authz.Authorize(ctx, wildcard); err == nil && decision == authorizer.DecisionAllow {
		return nil
	}
	return c.need(ctx, a, "cannot "+verb+" requests to this signer")
}
