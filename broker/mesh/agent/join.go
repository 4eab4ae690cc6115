package agent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"cmp"
	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
)

// nameTries bounds the attempts with a suffix when the machine's name is taken.
const nameTries = 5

// join makes the agent a node: from its stored state, or by enrolling.
func (a *Agent) join(ctx context.Context) error {
	s := &a.dir.state
	if s.UID == "" {
		if err := a.draft(); err != nil {
			return err
		}
	}
	var authority atomic.Pointer[x509.Certificate]
	a.client = &client{}
	for _, server := range a.config.Servers {
		config, err := trust(a.config, server, s.Authority, authority.Store)
		if err != nil {
			return err
		}
		a.client.add(server, config)
	}
	if s.UID == "" {
		if err := a.enrol(ctx); err != nil {
			return err
		}
		if cert := authority.Load(); cert != nil {
			s.Authority = encodePEM(cert)
		}
		if err := a.dir.save(); err != nil {
			return err
		}
		a.log.Info("joined the mesh", "project", s.Project, "name", s.Name)
	} else {
		a.log.Info("back in the mesh", "project", s.Project, "name", s.Name)
		if servers := strings.Join(a.config.Servers, ","); servers != s.Server {
			s.Server = servers
			if err := a.dir.save(); err != nil {
				return err
			}
		}
	}
	a.client.credential = v1alpha1.Credential(s.UID, s.Secret)
	if a.config.Joined != nil {
		a.config.Joined(Node{Project: s.Project, Name: s.Name, UID: s.UID})
	}
	return nil
}

// draft saves the enrolment request before it is sent. It keeps a draft of an
// earlier run with the same token: the server may have granted it already.
func (a *Agent) draft() error {
	s := &a.dir.state
	if a.config.Token == "" {
		return fmt.Errorf("--token: this node has not enrolled yet; make a token with: exeunt node token create")
	}
	parts := strings.Split(strings.TrimSpace(a.config.Token), "_")
	if len(parts) != 3 {
		return fmt.Errorf("--token: this is not a bootstrap token; they look like exb_…_…")
	}
	if s.TokenID == parts[1] && s.Nonce != "" {
		return nil
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	*s = state{
		Server: strings.Join(a.config.Servers, ","), TokenID: parts[1], Nonce: rand.Text(),
		Secret: base64.RawURLEncoding.EncodeToString(secret), Name: a.config.Name,
	}
	s.Name = cmp.Or(s.Name, machineName())
	return a.dir.save()
}

// enrol sends the enrolment, with retries while no server answers.
func (a *Agent) enrol(ctx context.Context) error {
	s := &a.dir.state
	for try := 1; ; try++ {
		request := v1alpha1.EnrolRequest{
			Token: strings.TrimSpace(a.config.Token), Project: a.config.Project, Nonce: s.Nonce, Secret: s.Secret, Name: s.Name,
			Address: a.relay.address(a.config.Advertise), DrainTimeoutSeconds: int64((a.config.DrainTimeout + time.Second - 1) / time.Second),
		}
		var answer v1alpha1.EnrolAnswer
		err := a.client.retry(ctx, a.log, "enrol", func(ctx context.Context) error {
			return a.client.call(ctx, v1alpha1.EnrolPath, request, &answer)
		})
		if refusedFor(err, v1alpha1.ReasonNameTaken) && a.config.Name == "" && try < nameTries {
			s.Name = machineName() + "-" + strings.ToLower(rand.Text()[:5])
			if err := a.dir.save(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("enrol: %w", err)
		}
		s.UID, s.Project, s.Name = answer.UID, answer.Project, answer.Name
		return nil
	}
}

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
