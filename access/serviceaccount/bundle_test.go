package serviceaccount

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// certificate makes a certificate that ends then, in PEM.
func certificate(t *testing.T, then time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: then}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestBundle: replicas with different authorities complete kube-root-ca.crt, keep what
// others wrote, and remove what is retired, expired or no certificate.
func TestBundle(t *testing.T) {
	later := time.Now().Add(time.Hour)
	first, second, other, expired := certificate(t, later), certificate(t, later), certificate(t, later), certificate(t, time.Now().Add(-time.Hour))
	for _, test := range []struct{ what, bundle, ca, retired, want string }{
		{"an empty one", "", first, "", first},
		{"a rotation begins", first, second + first, "", first + second},
		{"a rotation, at a replica that has not restarted", first + second, first, "", first + second},
		{"a complete one, with an empty line at its end", second + first + "\n", first + second, "", second + first + "\n"},
		{"a rotation ends", first + second + other, second, first, second + other},
		{"an authority of this server is never retired", first, first, first, first},
		{"an expired one", expired + first, first, "", first},
		{"no certificate", "x", first, "", first},
	} {
		if got := withCA(test.bundle, []byte(test.ca), []byte(test.retired)); got != test.want {
			t.Errorf("%s: got\n%s, want\n%s", test.what, got, test.want)
		}
	}
}
