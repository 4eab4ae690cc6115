package access

import (
	"bytes"
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/exeunt/exeunt/access/signing"
)

// SetRequestor writes into a new CertificateSigningRequest who asks for the certificate,
// and whether that is a User. Clients cannot: the strategy has cleared the fields.
func (d *Door) SetRequestor(client user.Info, obj runtime.Object) {
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
	if uid, isUser := strings.CutPrefix(d.Remember(client).GetUID(), UserUIDPrefix); isUser {
		r.Spec.Extra[signing.UserKey] = certificatesv1.ExtraValue{uid}
	}
}

// checkSigning decides on what certificates are made of, as admission plugins and strategies of
// Kubernetes do: no CertificateSigningRequest for system:masters by the signer of clients; to
// approve or deny it needs the verb approve on the signer, to set the certificate sign; the
// status of a PodCertificateRequest needs sign, and the roots of a signer's ClusterTrustBundle
// attest.
func (d *Door) checkSigning(ctx context.Context, w Write) error {
	switch obj := w.Object.(type) {
	case *certificatesv1.CertificateSigningRequest:
		return d.checkRequest(ctx, w, obj)
	case *certificatesv1.PodCertificateRequest:
		old, _ := w.Old.(*certificatesv1.PodCertificateRequest)
		if old != nil && !equality.Semantic.DeepEqual(obj.Status, old.Status) {
			return d.needSigner(ctx, w, "sign", obj.Spec.SignerName)
		}
	case *certificatesv1.ClusterTrustBundle:
		old, _ := w.Old.(*certificatesv1.ClusterTrustBundle)
		if obj.Spec.SignerName != "" && (old == nil || !equality.Semantic.DeepEqual(obj.Spec, old.Spec)) {
			return d.needSigner(ctx, w, "attest", obj.Spec.SignerName)
		}
	}
	return nil
}

func (d *Door) checkRequest(ctx context.Context, w Write, r *certificatesv1.CertificateSigningRequest) error {
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
		if err := d.needSigner(ctx, w, "approve", r.Spec.SignerName); err != nil {
			return err
		}
	}
	if !equality.Semantic.DeepEqual(of(r, false), of(old, false)) || !bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		return d.needSigner(ctx, w, "sign", r.Spec.SignerName)
	}
	return nil
}

// needSigner requires a verb on a signer, DOMAIN/NAME, or on all signers of its domain,
// DOMAIN/*.
func (d *Door) needSigner(ctx context.Context, w Write, verb, signer string) error {
	a := authorizer.AttributesRecord{
		User: w.Client, Verb: verb, ResourceRequest: true,
		APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers", Name: signer,
	}
	domain, _, _ := strings.Cut(signer, "/")
	wildcard := a
	wildcard.Name = domain + "/*"
	if decision, _, err := d.authz.Authorize(ctx, wildcard); err == nil && decision == authorizer.DecisionAllow {
		return nil
	}
	return d.need(ctx, a, "cannot "+verb+" requests to this signer")
}
