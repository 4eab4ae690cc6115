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

// checkSigning decides on CertificateSigningRequests, as three admission plugins of
// Kubernetes do: no request for system:masters by the signer of clients; to approve or
// deny needs the verb approve on the signer, to set the certificate sign.
func (d *Door) checkSigning(ctx context.Context, w Write) error {
	r, ok := w.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return nil
	}
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
