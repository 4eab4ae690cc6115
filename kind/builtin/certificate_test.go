package builtin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/lifecycle"
)

func newSigningRequest(t *testing.T) *certificatesv1.CertificateSigningRequest {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "jane"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		SignerName: "kubernetes.io/kube-apiserver-client", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
	}}
}

func fieldsOf(errs field.ErrorList) string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Field)
	}
	return strings.Join(out, " ")
}

func TestValidateSigningRequest(t *testing.T) {
	strategy := lookup(t, certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest")).Strategy
	short := int32(599)
	for name, test := range map[string]struct {
		change func(*certificatesv1.CertificateSigningRequest)
		want   string
	}{
		"valid":      {func(r *certificatesv1.CertificateSigningRequest) { r.Name = "node-csr-A_b" }, ""},
		"no request": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = nil }, "spec.request"},
		"not signed": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = broken(r.Spec.Request) }, "spec.request"},
		"no usages":  {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Usages = nil }, "spec.usages"},
		"odd usages": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = []certificatesv1.KeyUsage{"any", "odd", "any"}
		}, "spec.usages[1] spec.usages[2]"},
		"no signer":      {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "" }, "spec.signerName"},
		"short signer":   {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "signer" }, "spec.signerName"},
		"odd domain":     {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "domain/signer" }, "spec.signerName"},
		"legacy signer":  {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "kubernetes.io/legacy-unknown" }, "spec.signerName"},
		"too short life": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.ExpirationSeconds = &short }, "spec.expirationSeconds"},
	} {
		r := newSigningRequest(t)
		test.change(r)
		_, errs := strategy.Create(background, r)
		if got := fieldsOf(errs); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// broken changes the last byte of a request's signature.
func broken(text []byte) []byte {
	block, _ := pem.Decode(text)
	block.Bytes[len(block.Bytes)-1] ^= 1
	return pem.EncodeToMemory(block)
}

// TestSigningSubresources: approval and status each change their own part, and take
// nothing back.
func TestSigningSubresources(t *testing.T) {
	v := lookup(t, certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
	condition := func(t certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestCondition {
		return certificatesv1.CertificateSigningRequestCondition{Type: t, Status: corev1.ConditionTrue}
	}
	approved := newSigningRequest(t)
	approved.ResourceVersion = "1"
	approved.Status.Conditions = append(approved.Status.Conditions, condition(certificatesv1.CertificateApproved))
	approved.Status.Conditions[0].LastUpdateTime, approved.Status.Conditions[0].LastTransitionTime = metav1.Unix(1e9, 0), metav1.Unix(1e9, 0)
	for name, test := range map[string]struct {
		strategy lifecycle.Strategy
		change   func(*certificatesv1.CertificateSigningRequest)
		want     string // fields of errors
		kept     bool   // the change is undone
	}{
		"approval fails it": {CertificateApprovalStrategy(), func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Failed"))
		}, "", false},
		"approval denies it too": {CertificateApprovalStrategy(), func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Denied"))
		}, "status.conditions", false},
		"approval repeats it": {CertificateApprovalStrategy(), func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Approved"))
		}, "status.conditions[1].type", false},
		"approval is taken back":     {CertificateApprovalStrategy(), func(r *certificatesv1.CertificateSigningRequest) { r.Status.Conditions = nil }, "status.conditions", false},
		"approval sets certificate":  {CertificateApprovalStrategy(), func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") }, "", true},
		"approval changes the spec":  {CertificateApprovalStrategy(), func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Username = "root" }, "", true},
		"status takes approval back": {v.Status, func(r *certificatesv1.CertificateSigningRequest) { r.Status.Conditions = nil }, "status.conditions", false},
		"status denies": {v.Status, func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Denied"))
		}, "status.conditions status.conditions", false},
		"status sets no certificate": {v.Status, func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") }, "status.certificate", false},
		"status changes the spec":    {v.Status, func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Username = "root" }, "", true},
		"an update approves":         {v.Strategy, func(r *certificatesv1.CertificateSigningRequest) { r.Status.Conditions = nil }, "", true},
		"an update changes the spec": {v.Strategy, func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "other.io/x" }, "", true},
	} {
		next := approved.DeepCopy()
		test.change(next)
		_, errs := test.strategy.Update(background, next, approved)
		if got := fieldsOf(errs); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		same := next.Spec.Username == approved.Spec.Username && next.Spec.SignerName == approved.Spec.SignerName && len(next.Status.Certificate) == 0 &&
			slices.EqualFunc(next.Status.Conditions, approved.Status.Conditions, func(a, b certificatesv1.CertificateSigningRequestCondition) bool { return a.Type == b.Type })
		if same != test.kept {
			t.Errorf("%s: kept is %v", name, same)
		}
	}
}
