package access

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/internal/durable"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	certLife      = 365 * 24 * time.Hour
	// renewBefore is how long before its expiry a certificate is replaced: a day before
	// exeunt status and the alert call it a problem.
	renewBefore = 31 * 24 * time.Hour
)

// Identity holds the server's certificate and the authority that signs the
// certificates of its clients.
type Identity struct {
	Authority *x509.Certificate // constant after Open
	authority pair              // constant after Open
	rotation  rotation          // constant after Open
	dir       string            // constant after Open
	hosts     []string          // constant after Open: names and addresses of the serving certificate
	serving   atomic.Pointer[tls.Certificate]
	provided  provided
}

// pair is a certificate and its key, both PEM.
type pair struct{ cert, key []byte }

// Open reads the identity in dir. It issues a certificate that is missing, expires
// within renewBefore, or does not cover hosts. Replicas that share the authority's
// two files (ca.crt, ca.key) accept each other's clients.
func Open(dir string, hosts []string, now time.Time) (*Identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make certificate directory: %w", err)
	}
	id := &Identity{dir: dir, hosts: hosts}
	if err := id.openAuthority(now); err != nil {
		return nil, err
	}
	if _, err := id.Renew(now); err != nil {
		return nil, err
	}
	return id, nil
}

// Renew replaces the serving certificate if it expires soon, and reports whether it
// did. New handshakes use the new certificate; open connections stay.
func (id *Identity) Renew(now time.Time) (renewed bool, err error) {
	p, renewed, err := id.readOrIssue("serving", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "exeunt"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, id.hosts, now)
	if err != nil {
		return false, err
	}
	serving, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return false, fmt.Errorf("read serving certificate: %w", err)
	}
	// Clients that know only the authority's fingerprint need its certificate; those that
	// know only the previous one need the new one as signed by it.
	serving.Certificate = append(append(serving.Certificate, id.Authority.Raw), id.rotation.chain()...)
	id.serving.Store(&serving)
	return renewed, nil
}

// AuthorityPEM returns the authority's certificate and, during a rotation, that of the
// previous one.
func (id *Identity) AuthorityPEM() []byte {
	return slices.Concat(id.authority.cert, encodeCerts(id.rotation.previous...))
}

// RetiredPEM returns the certificate of an authority that is no longer trusted, so that
// copies of it can be removed; nil if there is none.
func (id *Identity) RetiredPEM() []byte { return encodeCerts(id.rotation.retired...) }

// SignClient issues a client certificate for the key and the subject of a request: its
// common name is the user, its organizations are the groups. A uid says that the user is a
// User (certificates.current); a request cannot bring its own. The certificate ends with
// the authority, at the latest. During a rotation the new authority as signed by the
// previous one follows, for replicas that trust only that one.
func (id *Identity) SignClient(request *x509.CertificateRequest, uid types.UID, life time.Duration, now time.Time) ([]byte, error) {
	signer, err := tls.X509KeyPair(id.authority.cert, id.authority.key)
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: request.Subject.CommonName, Organization: request.Subject.Organization},
		NotBefore:   now.Add(-5 * time.Minute), // clocks differ
		NotAfter:    now.Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames:    request.DNSNames, IPAddresses: request.IPAddresses, EmailAddresses: request.EmailAddresses, URIs: request.URIs,
		BasicConstraintsValid: true,
	}
	if uid != "" {
		template.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: uidAttribute, Value: UserUIDPrefix + string(uid)}}
	}
	if template.NotAfter.After(id.Authority.NotAfter) {
		template.NotAfter = id.Authority.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, id.Authority, request.PublicKey, signer.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate: %w", err)
	}
	return slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), id.rotation.crossPEM()), nil
}

// uidAttribute is Kubernetes' attribute of a subject for the uid of a user.
var uidAttribute = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// openAuthority reads the authority, or creates it if both files are missing. It
// never replaces an invalid authority: that would lock out all clients, so the
// operator must decide.
func (id *Identity) openAuthority(now time.Time) error {
	if err := completeReplacement(id.dir); err != nil {
		return err
	}
	p, err := id.read("ca")
	if errors.Is(err, fs.ErrNotExist) && !id.has("ca.crt") {
		p, err = id.newAuthority(now)
	}
	if err != nil {
		return err
	}
	cert, err := parseCert(p.cert)
	if err != nil {
		return fmt.Errorf("read certificate authority: %s: %w", filepath.Join(id.dir, "ca.crt"), err)
	}
	if _, err := tls.X509KeyPair(p.cert, p.key); err != nil {
		return fmt.Errorf("read certificate authority: %s: %w", filepath.Join(id.dir, "ca.key"), err)
	}
	if now.After(cert.NotAfter) {
		return fmt.Errorf("the certificate authority ended on %s: move ca.crt and ca.key out of %s to have a new one made, and give clients new credentials",
			cert.NotAfter.Format(time.DateOnly), id.dir)
	}
	id.authority, id.Authority = p, cert
	id.rotation, err = readRotation(id.dir, cert)
	return err
}

func (id *Identity) has(name string) bool {
	_, err := os.Lstat(filepath.Join(id.dir, name))
	return err == nil
}

func (id *Identity) newAuthority(now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make authority key: %w", err)
	}
	template := authorityTemplate("exeunt-ca", now)
	return id.sign("ca", template, template, key, key)
}

func authorityTemplate(name string, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(authorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
}

// readOrIssue reads the certificate called name, or issues one and sets renewed.
func (id *Identity) readOrIssue(name string, template *x509.Certificate, hosts []string, now time.Time) (p pair, renewed bool, err error) {
	p, err = id.read(name)
	if err == nil && id.isValid(p, hosts, now) {
		return p, false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pair{}, false, err
	}
	signer, err := tls.X509KeyPair(id.authority.cert, id.authority.key)
	if err != nil {
		return pair{}, false, fmt.Errorf("read certificate authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, false, fmt.Errorf("make %s key: %w", name, err)
	}
	template.NotBefore = now.Add(-time.Hour)
	template.NotAfter = now.Add(certLife)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	p, err = id.sign(name, template, id.Authority, key, signer.PrivateKey)
	return p, err == nil, err
}

// isValid reports whether a stored certificate is signed by our authority, does not
// expire soon, covers the hosts, and matches its key: a crash during a renewal
// leaves the new key with the old certificate.
func (id *Identity) isValid(p pair, hosts []string, now time.Time) bool {
	if _, err := tls.X509KeyPair(p.cert, p.key); err != nil {
		return false
	}
	cert, err := parseCert(p.cert)
	if err != nil || cert.CheckSignatureFrom(id.Authority) != nil || now.After(cert.NotAfter.Add(-renewBefore)) {
		return false
	}
	for _, host := range hosts {
		// VerifyHostname does not match a wildcard name with itself.
		if !slices.Contains(cert.DNSNames, host) && cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

func (id *Identity) sign(name string, template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.PrivateKey) (pair, error) {
	p, err := signPair(template, parent, key, signer)
	if err != nil {
		return pair{}, fmt.Errorf("sign %s certificate: %w", name, err)
	}
	// Write the key first: openAuthority never replaces a ca.crt without its key.
	if err := writePrivate(filepath.Join(id.dir, name+".key"), p.key); err != nil {
		return pair{}, err
	}
	return p, writePrivate(filepath.Join(id.dir, name+".crt"), p.cert)
}

func signPair(template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.PrivateKey) (pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

func (id *Identity) read(name string) (pair, error) {
	cert, err := os.ReadFile(filepath.Join(id.dir, name+".crt"))
	if err != nil {
		return pair{}, fmt.Errorf("read %s certificate: %w", name, err)
	}
	key, err := os.ReadFile(filepath.Join(id.dir, name+".key"))
	if err != nil {
		return pair{}, fmt.Errorf("read %s key: %w", name, err)
	}
	return pair{cert, key}, nil
}

// writePrivate replaces a file atomically, with mode 0600 and the owner of its directory. After a crash of the machine
// the file has the old content or the new one.
func writePrivate(path string, data []byte) error {
	if err := durable.WriteFile(path, data, durable.KeepOwner); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

func parseCert(data []byte) (*x509.Certificate, error) {
	block, rest := pem.Decode(data)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("not one PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}
