package builtin

import (
	"context"
	"crypto/x509"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	certificatesapi "k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/pkg/registry/certificates/certificates"
	"k8s.io/kubernetes/pkg/registry/certificates/clustertrustbundle"
	"k8s.io/kubernetes/pkg/registry/certificates/podcertificaterequest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// SigningRequests is the storage name of CertificateSigningRequest.
const SigningRequests = object.SigningRequests

// certificateDefs are requests for certificates, and the roots to trust. Package access sets who
// asked, and checks the right to sign.
func certificateDefs() []def {
	pods := podcertificaterequest.NewStrategy()
	return []def{
		{
			obj: &certificatesv1.CertificateSigningRequest{}, plural: "certificatesigningrequests", short: []string{"csr"},
			strategy: certificates.Strategy, status: certificates.StatusStrategy,
		},
		{obj: &certificatesv1.ClusterTrustBundle{}, plural: "clustertrustbundles", strategy: clustertrustbundle.Strategy},
		{
			obj: &certificatesv1.PodCertificateRequest{}, plural: "podcertificaterequests",
			strategy: pods, status: podcertificaterequest.NewStatusStrategy(pods, allow{}, clock.RealClock{}),
		},
	}
}

// allow is an authorizer for strategies that ask one. Package access checks the right to sign
// (checkSigning). Nothing checks the rights of drivers to the status of a ResourceClaim.
type allow struct{}

func (allow) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// CertificateApprovalStrategy is the strategy of a CertificateSigningRequest's /approval:
// it changes the conditions and nothing else.
func CertificateApprovalStrategy() lifecycle.Strategy {
	return newStrategy(certificates.ApprovalStrategy, certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), "approval")
}

// CertificateApprovalResetFields are the fields that /approval keeps.
func CertificateApprovalResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields(certificates.ApprovalStrategy)
}

// ParseCertificateRequest reads a PKCS#10 request in PEM.
func ParseCertificateRequest(text []byte) (*x509.CertificateRequest, error) {
	return certificatesapi.ParseCSR(text)
}
