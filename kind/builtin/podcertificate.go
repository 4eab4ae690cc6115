package builtin

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
)

// Limits of certificates.k8s.io, in bytes and seconds.
const (
	maxTrustBundle      = 1 << 20
	maxStubRequest      = 10 << 10
	maxCertificateChain = 100 << 10
	leastPodCertificate = 60 * 60
	mostPodCertificate  = 91 * 24 * 60 * 60
	mostKubernetes      = 24 * 60 * 60 // for signers of kubernetes.io
)

// podCertificateKinds are the kinds with which pods get certificates and trust others'.
func podCertificateKinds() []*kind.Kind {
	return []*kind.Kind{
		def[certificatesv1.ClusterTrustBundle, *certificatesv1.ClusterTrustBundle]{
			gv: certificatesv1.SchemeGroupVersion, plural: "clustertrustbundles", cluster: true,
			conditional: true,
			name:        trustBundleName,
			validate:    validateTrustBundle,
			validateUpdate: func(obj, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
				return unchanged(specPath.Child("signerName"), obj.Spec.SignerName, old.Spec.SignerName)
			},
			table: trustBundleTable,
		}.kind(),
		def[certificatesv1.PodCertificateRequest, *certificatesv1.PodCertificateRequest]{
			gv: certificatesv1.SchemeGroupVersion, plural: "podcertificaterequests",
			conditional:    true,
			parts:          func(r *certificatesv1.PodCertificateRequest) (any, any) { return &r.Spec, &r.Status },
			validateCreate: validatePodCertificate,
			validateUpdate: func(obj, old *certificatesv1.PodCertificateRequest) field.ErrorList {
				return unchanged(specPath, obj.Spec, old.Spec)
			},
			validateStatus: validatePodCertificateStatus,
			table:          podCertificateTable,
		}.kind(),
	}
}

// trustBundleName allows the colons that separate a signer from the rest of the name.
func trustBundleName(name string, prefix bool) []string {
	return apivalidation.NameIsDNSSubdomain(strings.ReplaceAll(name, ":", "."), prefix)
}

// signerName requires DOMAIN/PATH.
func signerName(at *field.Path, name string) field.ErrorList {
	domain, path, ok := strings.Cut(name, "/")
	if !ok || path == "" || strings.Contains(path, "/") || !strings.Contains(domain, ".") {
		return field.ErrorList{field.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	return append(invalids(at, domain, validation.IsDNS1123Subdomain(domain)), invalids(at, path, validation.IsDNS1123Subdomain(path))...)
}

func validateTrustBundle(b *certificatesv1.ClusterTrustBundle) field.ErrorList {
	var errs field.ErrorList
	name, signer := field.NewPath("metadata", "name"), b.Spec.SignerName
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	switch {
	case signer == "" && strings.Contains(b.Name, ":"):
		errs = append(errs, field.Invalid(name, b.Name, "ClusterTrustBundle without signer name must not have \":\" in its name"))
	case signer != "":
		errs = append(errs, signerName(specPath.Child("signerName"), signer)...)
		if !strings.HasPrefix(b.Name, prefix) {
			errs = append(errs, field.Invalid(name, b.Name, fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix)))
		}
	}
	at := specPath.Child("trustBundle")
	if len(b.Spec.TrustBundle) > maxTrustBundle {
		return append(errs, field.TooLong(at, "", maxTrustBundle))
	}
	return append(errs, validateAnchors(at, []byte(b.Spec.TrustBundle))...)
}

// validateAnchors requires PEM blocks of distinct CA certificates.
func validateAnchors(at *field.Path, text []byte) (errs field.ErrorList) {
	const omitted = "<value omitted>"
	seen := map[string]bool{}
	for i := 0; ; i++ {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case block.Type != "CERTIFICATE":
			errs = append(errs, field.Invalid(at, omitted, fmt.Sprintf("entry %d has bad block type: %v", i, block.Type)))
		case len(block.Headers) > 0:
			errs = append(errs, field.Invalid(at, omitted, fmt.Sprintf("entry %d has PEM block headers", i)))
		case err != nil:
			errs = append(errs, field.Invalid(at, omitted, fmt.Sprintf("entry %d does not parse as X.509", i)))
		case !cert.IsCA || !cert.BasicConstraintsValid:
			errs = append(errs, field.Invalid(at, omitted, fmt.Sprintf("entry %d does not have the CA bit set", i)))
		case seen[string(block.Bytes)]:
			errs = append(errs, field.Invalid(at, omitted, fmt.Sprintf("duplicate trust anchor (entry %d)", i)))
		}
		seen[string(block.Bytes)] = true
	}
	if len(seen) == 0 {
		errs = append(errs, field.Invalid(at, omitted, "at least one trust anchor must be provided"))
	}
	return errs
}

func validatePodCertificate(r *certificatesv1.PodCertificateRequest) field.ErrorList {
	s := &r.Spec
	errs := signerName(specPath.Child("signerName"), s.SignerName)
	for _, f := range []struct{ name, value string }{
		{"podName", s.PodName}, {"serviceAccountName", s.ServiceAccountName}, {"nodeName", string(s.NodeName)},
	} {
		errs = append(errs, invalids(specPath.Child(f.name), f.value, validation.IsDNS1123Subdomain(f.value))...)
	}
	for _, f := range []struct{ name, value string }{
		{"podUID", string(s.PodUID)}, {"serviceAccountUID", string(s.ServiceAccountUID)}, {"nodeUID", string(s.NodeUID)},
	} {
		if f.value == "" {
			errs = append(errs, field.Invalid(specPath.Child(f.name), f.value, "must not be empty"))
		} else if len(f.value) > 128 {
			errs = append(errs, field.TooLong(specPath.Child(f.name), f.value, 128))
		}
	}
	most := int32(mostPodCertificate)
	if domain, _, _ := strings.Cut(s.SignerName, "/"); domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		most = mostKubernetes
	}
	switch seconds := s.MaxExpirationSeconds; {
	case seconds == nil:
		errs = append(errs, field.Required(specPath.Child("maxExpirationSeconds"), "must be set"))
	case *seconds < leastPodCertificate || *seconds > most:
		errs = append(errs, field.Invalid(specPath.Child("maxExpirationSeconds"), *seconds, fmt.Sprintf("must be in the range [%d, %d]", leastPodCertificate, most)))
	}
	return append(errs, validateStubRequest(specPath.Child("stubPKCS10Request"), s.StubPKCS10Request)...)
}

// validateStubRequest requires a signed request with a key of a type that Kubernetes
// accepts. Its other content does not matter.
func validateStubRequest(at *field.Path, der []byte) field.ErrorList {
	if len(der) > maxStubRequest {
		return field.ErrorList{field.TooLong(at, "", maxStubRequest)}
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "must be a valid PKCS#10 CSR")}
	}
	switch key := request.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			return field.ErrorList{field.Invalid(at, "curve "+key.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521")}
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return field.ErrorList{field.Invalid(at, fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")}
		}
	default:
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")}
	}
	if request.CheckSignature() != nil {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "invalid signature")}
	}
	return nil
}

func endsPodCertificate(condition string) bool {
	switch condition {
	case certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed:
		return true
	}
	return false
}

// validatePodCertificateStatus: a request ends once. An issued certificate is for the key
// of the request; a denied or failed request has none.
func validatePodCertificateStatus(obj, old *certificatesv1.PodCertificateRequest) field.ErrorList {
	at := field.NewPath("status")
	errs := metav1validation.ValidateConditions(obj.Status.Conditions, at.Child("conditions"))
	ended := ""
	for i, c := range obj.Status.Conditions {
		errs = append(errs, oneOf(at.Child("conditions").Index(i).Child("type"), c.Type, certificatesv1.PodCertificateRequestConditionTypeDenied,
			certificatesv1.PodCertificateRequestConditionTypeFailed, certificatesv1.PodCertificateRequestConditionTypeIssued)...)
		errs = append(errs, oneOf(at.Child("conditions").Index(i).Child("status"), c.Status, metav1.ConditionTrue)...)
		if ended != "" {
			errs = append(errs, field.Invalid(at.Child("conditions").Index(i).Child("type"), c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		ended = c.Type
	}
	if len(old.Status.Conditions) > 0 && len(unchanged(at, obj.Status, old.Status)) > 0 {
		return append(errs, field.Invalid(at, field.OmitValueType{}, "immutable after PodCertificateRequest is issued, denied, or failed"))
	}
	if ended == certificatesv1.PodCertificateRequestConditionTypeIssued {
		return append(errs, validateIssued(at, obj)...)
	}
	if bare := (certificatesv1.PodCertificateRequestStatus{Conditions: obj.Status.Conditions}); len(unchanged(at, obj.Status, bare)) > 0 {
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, "non-condition status fields must be empty unless the certificate is issued"))
	}
	return errs
}

func validateIssued(at *field.Path, r *certificatesv1.PodCertificateRequest) field.ErrorList {
	chain, s := at.Child("certificateChain"), &r.Status
	if len(s.CertificateChain) > maxCertificateChain {
		return field.ErrorList{field.TooLong(chain, "", maxCertificateChain)}
	}
	block, _ := pem.Decode([]byte(s.CertificateChain))
	if block == nil || block.Type != "CERTIFICATE" {
		return field.ErrorList{field.Invalid(chain, field.OmitValueType{}, "issued certificate chain must contain at least one certificate")}
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return field.ErrorList{field.Invalid(chain, field.OmitValueType{}, "leaf certificate does not parse as valid X.509")}
	}
	request, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil || !bytes.Equal(request.RawSubjectPublicKeyInfo, leaf.RawSubjectPublicKeyInfo) {
		return field.ErrorList{field.Invalid(chain, field.OmitValueType{}, "leaf certificate was not issued to the requested public key")}
	}
	var errs field.ErrorList
	if s.NotBefore == nil || !s.NotBefore.Time.Equal(leaf.NotBefore) {
		errs = append(errs, field.Invalid(at.Child("notBefore"), s.NotBefore, "must be set to the NotBefore time encoded in the leaf certificate"))
	}
	if s.NotAfter == nil || !s.NotAfter.Time.Equal(leaf.NotAfter) {
		errs = append(errs, field.Invalid(at.Child("notAfter"), s.NotAfter, "must be set to the NotAfter time encoded in the leaf certificate"))
	}
	if b := s.BeginRefreshAt; b == nil || b.Time.Before(leaf.NotBefore) || b.Time.After(leaf.NotAfter) {
		errs = append(errs, field.Invalid(at.Child("beginRefreshAt"), b, "must be between notBefore and notAfter"))
	}
	return errs
}
