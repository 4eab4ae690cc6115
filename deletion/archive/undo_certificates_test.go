package archive

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"hash/fnv"
	"maps"
	"math/big"
	"net/netip"
	"strconv"
)

const ipAddresses = "ipaddresses.networking.k8s.io"

func init() { maps.Copy(undoSpecs, certificateSpecs()) }

// certificateSpecs are the kinds of undoSpecs that hold a request or a certificate.
func certificateSpecs() map[string]string {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		panic(err)
	}
	issuer := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	authority, err := x509.CreateCertificate(rand.Reader, issuer, issuer, key.Public(), key)
	if err != nil {
		panic(err)
	}
	asked := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority})
	return map[string]string{
		"certificatesigningrequests.certificates.k8s.io": fmt.Sprintf(`"spec":{"request":%q,"signerName":"example.com/signer","usages":["client auth"]}`,
			base64.StdEncoding.EncodeToString(asked)),
		"podcertificaterequests.certificates.k8s.io": fmt.Sprintf(`"spec":{"signerName":"example.com/signer","podName":"p","podUID":"UID","serviceAccountName":"default",
"serviceAccountUID":"UID","nodeName":"n","nodeUID":"UID","maxExpirationSeconds":86400,"stubPKCS10Request":%q}`, base64.StdEncoding.EncodeToString(request)),
		"clustertrustbundles.certificates.k8s.io": `"spec":{"trustBundle":` + strconv.Quote(string(trusted)) + `}`,
		ipAddresses: `"spec":{"parentRef":{"resource":"services","namespace":"NAMESPACE","name":"NAME"}}`,
	}
}

// addressOf is the name of an IPAddress, which is an address.
func addressOf(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	sum := h.Sum32()
	return netip.AddrFrom4([4]byte{10, byte(sum >> 16), byte(sum >> 8), byte(sum)}).String()
}
