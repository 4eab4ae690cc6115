package signing

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FuzzCertificate: no request, however broken, panics; what is signed has a name, a valid
// signature of its own key, and not the group of administrators.
func FuzzCertificate(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	for _, subject := range []pkix.Name{
		{CommonName: "jane", Organization: []string{"dev"}},
		{CommonName: "root", Organization: []string{"dev", "system:masters"}},
		{},
	} {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
		if err != nil {
			f.Fatal(err)
		}
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		f.Add(text)
		f.Add(append([]byte("-----BEGIN X-----\n-----END X-----\n"), text...))
		f.Add(append(text, text...))
		f.Add(text[:len(text)/2])
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		s := &Signer{
			Now:  time.Now,
			User: func(_ context.Context, _ string) (types.UID, error) { return "1", nil },
			Sign: func(r *x509.CertificateRequest, _ types.UID, _ time.Duration, _ time.Time) ([]byte, error) {
				if r.Subject.CommonName == "" || slices.Contains(r.Subject.Organization, "system:masters") || r.CheckSignature() != nil {
					t.Errorf("signed %v", r.Subject)
				}
				return nil, nil
			},
		}
		_, _ = s.certificate(t.Context(), &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		}})
	})
}
