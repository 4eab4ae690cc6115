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
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	certLife      = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced at start.
	renewBefore = 30 * 24 * time.Hour
)

// Identity is what the server proves itself with, and what it knows its
// callers by.
type Identity struct {
	Authority *x509.Certificate
	authority pair
	Serving   tls.Certificate
	dir       string
	now       time.Time
}

// pair is a certificate and its key, as files hold them.
type pair struct{ cert, key []byte }

// Open reads the identity kept in dir, and makes what is missing, ends soon,
// or does not cover hosts. Replicas that share the authority's two files
// (ca.crt, ca.key) accept each other's callers.
func Open(dir string, hosts []string, now time.Time) (*Identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make certificate directory: %w", err)
	}
	id := &Identity{dir: dir, now: now}
	if err := id.openAuthority(); err != nil {
		return nil, err
	}
	serving, err := id.issued("serving", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "exeunt"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, hosts)
	if err != nil {
		return nil, err
	}
	if id.Serving, err = tls.X509KeyPair(serving.cert, serving.key); err != nil {
		return nil, fmt.Errorf("read serving certificate: %w", err)
	}
	// Clients that know the authority by its fingerprint only find it here.
	id.Serving.Certificate = append(id.Serving.Certificate, id.Authority.Raw)
	return id, nil
}

// TLSConfig is how the server listens. A certificate is optional, so that
// anonymous callers can ask for the server's health, but one that is shown
// must be ours.
func (id *Identity) TLSConfig() *tls.Config {
	callers := x509.NewCertPool()
	callers.AddCert(id.Authority)
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{id.Serving},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    callers,
		NextProtos:   []string{"h2", "http/1.1"},
	}
}

// openAuthority reads the authority, or makes one where there is none. One
// that is there and no good is never replaced: every caller would be locked
// out, and a person has to know.
func (id *Identity) openAuthority() error {
	p, err := id.read("ca")
	if errors.Is(err, fs.ErrNotExist) && !id.has("ca.crt") {
		p, err = id.newAuthority()
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
	if id.now.After(cert.NotAfter) {
		return fmt.Errorf("the certificate authority ended on %s: move ca.crt and ca.key out of %s to have a new one made, and give callers new credentials",
			cert.NotAfter.Format(time.DateOnly), id.dir)
	}
	id.authority, id.Authority = p, cert
	return nil
}

func (id *Identity) has(name string) bool {
	_, err := os.Lstat(filepath.Join(id.dir, name))
	return err == nil
}

func (id *Identity) newAuthority() (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make authority key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "exeunt-ca"},
		NotBefore:             id.now.Add(-time.Hour),
		NotAfter:              id.now.Add(authorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	return id.sign("ca", template, template, key, key)
}

// issued reads the certificate called name, or issues one.
func (id *Identity) issued(name string, template *x509.Certificate, hosts []string) (pair, error) {
	p, err := id.read(name)
	if err == nil && id.fits(p, hosts) {
		return p, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pair{}, err
	}
	signer, err := tls.X509KeyPair(id.authority.cert, id.authority.key)
	if err != nil {
		return pair{}, fmt.Errorf("read certificate authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make %s key: %w", name, err)
	}
	template.SerialNumber = serial()
	template.NotBefore = id.now.Add(-time.Hour)
	template.NotAfter = id.now.Add(certLife)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return id.sign(name, template, id.Authority, key, signer.PrivateKey)
}

// fits says whether a kept certificate is ours, lasts, covers the hosts, and
// has its key: a crash while it was replaced leaves the next one's key.
func (id *Identity) fits(p pair, hosts []string) bool {
	if _, err := tls.X509KeyPair(p.cert, p.key); err != nil {
		return false
	}
	cert, err := parseCert(p.cert)
	if err != nil || cert.CheckSignatureFrom(id.Authority) != nil || id.now.After(cert.NotAfter.Add(-renewBefore)) {
		return false
	}
	for _, host := range hosts {
		if cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

func (id *Identity) sign(name string, template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.PrivateKey) (pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return pair{}, fmt.Errorf("sign %s certificate: %w", name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("encode %s key: %w", name, err)
	}
	p := pair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
	// The key first: a certificate without its key would be kept for ever.
	if err := writePrivate(filepath.Join(id.dir, name+".key"), p.key); err != nil {
		return pair{}, err
	}
	return p, writePrivate(filepath.Join(id.dir, name+".crt"), p.cert)
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

// writePrivate replaces a file whole, readable by its owner only.
func writePrivate(path string, data []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	if err := os.Rename(tmp, path); err != nil {
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

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system's randomness is gone
	}
	return n
}
