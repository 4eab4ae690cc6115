package builtin

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// SigningRequests is the storage name of CertificateSigningRequest.
const SigningRequests = object.SigningRequests

type signingRequest = certificatesv1.CertificateSigningRequest

// signingRequestDef declares CertificateSigningRequest. Its spec never changes. The server
// sets who asked (access.Door.SetRequestor).
func signingRequestDef() def[signingRequest, *signingRequest] {
	return def[signingRequest, *signingRequest]{
		gv: certificatesv1.SchemeGroupVersion, plural: "certificatesigningrequests", short: []string{"csr"}, cluster: true,
		name:  func(string, bool) []string { return nil },
		parts: func(r *signingRequest) (any, any) { return &r.Spec, &r.Status },
		prepareCreate: func(r *signingRequest) {
			r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = "", "", nil, nil
		},
		prepareUpdate:  func(obj, old *signingRequest) { obj.Spec = old.Spec },
		validateCreate: validateSigningRequest,
		prepareStatus:  func(obj, old *signingRequest) { stampConditions(obj, old) },
		validateStatus: validateSigningStatus,
		table:          signingRequestTable,
	}
}

func certificateKinds() []*kind.Kind { return []*kind.Kind{signingRequestDef().kind()} }

// CertificateApprovalStrategy is the strategy of a CertificateSigningRequest's /approval:
// it changes the conditions and nothing else.
func CertificateApprovalStrategy() lifecycle.Strategy {
	return &approvalStrategy{statusStrategy[signingRequest, *signingRequest]{&strategy[signingRequest, *signingRequest]{def: signingRequestDef()}}}
}

// CertificateApprovalResetFields are the fields that /approval keeps.
func CertificateApprovalResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(certificatesv1.SchemeGroupVersion.String()): fieldpath.NewSet(
			fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status", "certificate")),
	}
}

type approvalStrategy struct {
	statusStrategy[signingRequest, *signingRequest]
}

func (s *approvalStrategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	s.statusStrategy.PrepareForUpdate(ctx, obj, old)
	obj.(*signingRequest).Status.Certificate = old.(*signingRequest).Status.Certificate
}

func (s *approvalStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	p, o := obj.(*signingRequest), old.(*signingRequest)
	errs := append(validateMetaUpdate(p, o), validateConditions(p)...)
	return append(errs, keptConditions(p, o, certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed)...)
}

// Limits of a request.
const leastCertificateSeconds = 600

// certificateUsages are the usages that a request may name.
var certificateUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageAny, certificatesv1.UsageCRLSign, certificatesv1.UsageCertSign, certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning,
	certificatesv1.UsageContentCommitment, certificatesv1.UsageDataEncipherment, certificatesv1.UsageDecipherOnly, certificatesv1.UsageDigitalSignature,
	certificatesv1.UsageEmailProtection, certificatesv1.UsageEncipherOnly, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
	certificatesv1.UsageIPsecUser, certificatesv1.UsageKeyAgreement, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageMicrosoftSGC,
	certificatesv1.UsageNetscapeSGC, certificatesv1.UsageOCSPSigning, certificatesv1.UsageSMIME, certificatesv1.UsageServerAuth,
	certificatesv1.UsageSigning, certificatesv1.UsageTimestamping,
}

func validateSigningRequest(r *signingRequest) field.ErrorList {
	var errs field.ErrorList
	if request, err := ParseCertificateRequest(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(specPath.Child("request"), r.Spec.Request, err.Error()))
	} else if err := request.CheckSignature(); err != nil {
		errs = append(errs, field.Invalid(specPath.Child("request"), r.Spec.Request, err.Error()))
	}
	usages := specPath.Child("usages")
	if len(r.Spec.Usages) == 0 {
		errs = append(errs, field.Required(usages, ""))
	}
	for i, usage := range r.Spec.Usages {
		errs = append(errs, oneOf(usages.Index(i), usage, certificateUsages...)...)
		if slices.Contains(r.Spec.Usages[:i], usage) {
			errs = append(errs, field.Duplicate(usages.Index(i), usage))
		}
	}
	at := specPath.Child("signerName")
	if r.Spec.SignerName == "kubernetes.io/legacy-unknown" {
		errs = append(errs, field.Invalid(at, r.Spec.SignerName, "the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, signerName(at, r.Spec.SignerName)...)
	}
	if s := r.Spec.ExpirationSeconds; s != nil && *s < leastCertificateSeconds {
		errs = append(errs, field.Invalid(specPath.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

// ParseCertificateRequest reads a PKCS#10 request in PEM.
func ParseCertificateRequest(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// validateSigningStatus is for /status: it may set the certificate once, and the condition
// Failed. Approval has its own subresource.
func validateSigningStatus(obj, old *signingRequest) field.ErrorList {
	errs := validateConditions(obj)
	errs = append(errs, keptConditions(obj, old, certificatesv1.CertificateFailed)...)
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied} {
		if !equality.Semantic.DeepEqual(conditionsOf(obj, t), conditionsOf(old, t)) {
			errs = append(errs, field.Forbidden(conditionsPath, fmt.Sprintf("updates may not change a condition of type %q", t)))
		}
	}
	at := field.NewPath("status", "certificate")
	if len(old.Status.Certificate) > 0 && !bytes.Equal(obj.Status.Certificate, old.Status.Certificate) {
		errs = append(errs, field.Forbidden(at, "updates may not set certificate content again"))
	} else if err := validateChain(obj.Status.Certificate); err != nil {
		errs = append(errs, field.Invalid(at, "<certificate data>", err.Error()))
	}
	return errs
}

func validateChain(text []byte) error {
	for found := false; ; found = true {
		block, rest := pem.Decode(text)
		if block == nil {
			if len(text) > 0 && !found {
				return errors.New("must contain at least one CERTIFICATE PEM block")
			}
			return nil
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
		text = rest
	}
}

var conditionsPath = field.NewPath("status", "conditions")

func validateConditions(r *signingRequest) field.ErrorList {
	var errs field.ErrorList
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range r.Status.Conditions {
		at := conditionsPath.Index(i)
		errs = append(errs, required(at.Child("type"), string(c.Type))...)
		if seen[c.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen[c.Type] = true
		switch c.Type {
		case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			errs = append(errs, oneOf(at.Child("status"), c.Status, corev1.ConditionTrue)...)
		default:
			errs = append(errs, oneOf(at.Child("status"), c.Status, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown)...)
		}
	}
	if seen[certificatesv1.CertificateApproved] && seen[certificatesv1.CertificateDenied] {
		errs = append(errs, field.Invalid(conditionsPath, certificatesv1.CertificateDenied, "Approved and Denied conditions are mutually exclusive"))
	}
	return errs
}

// keptConditions refuses to remove conditions of these types.
func keptConditions(obj, old *signingRequest, types ...certificatesv1.RequestConditionType) field.ErrorList {
	var errs field.ErrorList
	for _, t := range types {
		if len(conditionsOf(obj, t)) < len(conditionsOf(old, t)) {
			errs = append(errs, field.Forbidden(conditionsPath, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		}
	}
	return errs
}

func conditionsOf(r *signingRequest, t certificatesv1.RequestConditionType) []certificatesv1.CertificateSigningRequestCondition {
	return slices.DeleteFunc(slices.Clone(r.Status.Conditions), func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type != t })
}

// stampConditions sets the times of new conditions.
func stampConditions(obj, old *signingRequest) {
	now := metav1.Now().Rfc3339Copy()
	for i := range obj.Status.Conditions {
		c := &obj.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		if before := conditionsOf(old, c.Type); len(before) > 0 && before[0].Status == c.Status && !before[0].LastTransitionTime.IsZero() {
			c.LastTransitionTime = before[0].LastTransitionTime
		}
	}
}

func signingRequestTable() table[*signingRequest] {
	return table[*signingRequest]{
		columns: named(
			ageColumn(),
			text("SignerName", "The signer that shall issue the certificate."),
			text("Requestor", "The client that created the request."),
			text("RequestedDuration", "How long the certificate shall be valid."),
			text("Condition", "Whether the request is approved, and the certificate issued."),
		),
		row: func(r *signingRequest, now time.Time) []any {
			requested := none
			if s := r.Spec.ExpirationSeconds; s != nil {
				requested = duration.HumanDuration(time.Duration(*s) * time.Second)
			}
			return []any{r.Name, age(r, now), r.Spec.SignerName, r.Spec.Username, requested, signingState(r)}
		},
	}
}

func signingState(r *signingRequest) string {
	has := func(t certificatesv1.RequestConditionType) bool { return len(conditionsOf(r, t)) > 0 }
	state := "Pending"
	switch {
	case has(certificatesv1.CertificateDenied):
		state = "Denied"
	case has(certificatesv1.CertificateApproved):
		state = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		state += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		state += ",Issued"
	}
	return state
}
