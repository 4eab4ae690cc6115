package agent

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// hashPrefix begins the fingerprint of a CA.
const hashPrefix = "sha256:"

// Fingerprint identifies a CA by its public key, as --ca-hash takes it.
func Fingerprint(authority *x509.Certificate) string {
	sum := sha256.Sum256(authority.RawSubjectPublicKeyInfo)
	return hashPrefix + hex.EncodeToString(sum[:])
}

// trust makes the TLS configuration for a server. known is a stored CA; learned
// is called with the CA that matched a fingerprint.
func trust(c Config, server, known string, learned func(*x509.Certificate)) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case c.CAFile != "":
		data, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("--ca-file %s: there is no PEM certificate in it", c.CAFile)
		}
	case c.CAHash != "":
		digest, ok := strings.CutPrefix(strings.ToLower(c.CAHash), hashPrefix)
		if raw, err := hex.DecodeString(digest); !ok || err != nil || len(raw) != sha256.Size {
			return nil, fmt.Errorf("--ca-hash %q: want sha256: and 64 hexadecimal digits", c.CAHash)
		}
		// The CA is not known yet: the server sends it with its own
		// certificate, the fingerprint identifies it, and then the usual checks
		// apply.
		u, err := url.Parse(server)
		if err != nil {
			return nil, err
		}
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(s tls.ConnectionState) error {
			authority, err := pinned(s.PeerCertificates, u.Hostname(), hashPrefix+digest)
			if err != nil {
				return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
			}
			learned(authority)
			return nil
		}
	case known != "":
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM([]byte(known))
	}
	return config, nil
}

// pinned checks a server's certificates against the CA with a fingerprint,
// which must be among them. host is the requested one, because a connection to
// an IP address names none.
func pinned(shown []*x509.Certificate, host, fingerprint string) (*x509.Certificate, error) {
	for _, authority := range shown {
		if subtle.ConstantTimeCompare([]byte(Fingerprint(authority)), []byte(fingerprint)) != 1 {
			continue
		}
		roots, between := x509.NewCertPool(), x509.NewCertPool()
		roots.AddCert(authority)
		for _, cert := range shown[1:] {
			between.AddCert(cert)
		}
		_, err := shown[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: between})
		return authority, err
	}
	return nil, fmt.Errorf("no certificate that the server has shown has the fingerprint %s: this is not the server that the token is for", fingerprint)
}

// untrusted reports whether a server was refused for its certificate. An
// expired or not yet valid certificate does not count: the clock of a machine
// that has just started may be wrong.
func untrusted(err error) bool {
	var refused *tls.CertificateVerificationError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &refused) && !(errors.As(err, &invalid) && invalid.Reason == x509.Expired)
}

func encodePEM(cert *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}
