package access

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/internal/task"
)

// Files are certificates that an administrator provides. An empty name: none.
type Files struct {
	// Cert and Key are the serving certificate, with its chain, and its key. Clients that
	// ask for one of its names get it; others, and the server's own clients on loopback,
	// get the certificate of the authority in the data directory.
	Cert, Key string
	// ClientCA has further authorities whose clients are known by their certificate.
	ClientCA string
}

// reloadEvery is how often the files are read again.
const reloadEvery = 5 * time.Second

// provided is what the files hold.
type provided struct {
	files    Files
	contents [3][]byte // of the files, as they were last read; owned by Reload
	serving  atomic.Pointer[tls.Certificate]
	clients  atomic.Pointer[x509.CertPool]
	// expires is when the first authority of ClientCA expires; nil: there is none.
	expires atomic.Pointer[time.Time]
}

// UseFiles reads the files, before the identity is used.
func (id *Identity) UseFiles(f Files) error {
	if (f.Cert == "") != (f.Key == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file belong together: set both or neither")
	}
	id.provided.files = f
	_, err := id.Reload()
	return err
}

// Reload reads the files again and reports whether they had changed. New handshakes use
// the new content; open connections stay. If one of the files cannot be used, everything
// stays as it was.
func (id *Identity) Reload() (changed bool, err error) {
	p := &id.provided
	var now [3][]byte
	for i, name := range []string{p.files.Cert, p.files.Key, p.files.ClientCA} {
		if name == "" {
			continue
		}
		if now[i], err = os.ReadFile(name); err != nil {
			return false, fmt.Errorf("read certificate file: %w", err)
		}
		changed = changed || !bytes.Equal(now[i], p.contents[i])
	}
	if !changed {
		return false, nil
	}
	var serving *tls.Certificate
	if p.files.Cert != "" {
		pair, err := tls.X509KeyPair(now[0], now[1])
		if err != nil {
			return false, fmt.Errorf("%s and %s: %w", p.files.Cert, p.files.Key, err)
		}
		serving = &pair
	}
	clients := x509.NewCertPool()
	id.addAuthorities(clients)
	if p.files.ClientCA != "" && !clients.AppendCertsFromPEM(now[2]) {
		return false, fmt.Errorf("%s: no certificate in PEM", p.files.ClientCA)
	}
	p.contents = now
	p.serving.Store(serving)
	p.clients.Store(clients)
	p.expires.Store(firstExpiry(now[2]))
	return true, nil
}

// WatchFiles reads the files again every five seconds until ctx ends. A file that cannot
// be used is logged once for each new fault.
func (id *Identity) WatchFiles(ctx context.Context, log *slog.Logger) error {
	last := ""
	for task.Sleep(ctx, reloadEvery) {
		changed, err := id.Reload()
		switch {
		case err != nil && err.Error() != last:
			last = err.Error()
			log.Error("new certificate files cannot be used; the server goes on with the old ones", "error", err)
		case err == nil:
			last = ""
		}
		if changed {
			log.Info("certificate files were read again")
		}
	}
	return nil
}

// certificateFor chooses the serving certificate by the name, or the address, that the
// client asks for.
func (id *Identity) certificateFor(hello *tls.ClientHelloInfo) *tls.Certificate {
	given := id.provided.serving.Load()
	if given == nil {
		return id.serving.Load()
	}
	name := hello.ServerName
	if name == "" && hello.Conn != nil { // clients that use an address send no name
		name, _, _ = net.SplitHostPort(hello.Conn.LocalAddr().String())
	}
	if given.Leaf.VerifyHostname(name) == nil {
		return given
	}
	return id.serving.Load()
}

// cipherSuites are those of TLS 1.2 that authenticate what they encrypt (AEAD) and have
// forward secrecy: no CBC. TLS 1.3 has no others.
var cipherSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// TLSConfig returns the configuration of the listener; it always uses the current
// certificates. A client certificate is optional, so that anonymous clients can read the
// health checks. A certificate that is sent must be signed by our authority, or by one of
// Files.ClientCA.
func (id *Identity) TLSConfig() *tls.Config {
	base := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		CipherSuites:   cipherSuites,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return id.certificateFor(hello), nil },
		ClientAuth:     tls.VerifyClientCertIfGiven,
		ClientCAs:      id.ClientAuthorities(),
		NextProtos:     []string{"h2", "http/1.1"},
	}
	if id.provided.files.ClientCA == "" {
		return base
	}
	// A resumed session must not outlive the authority that it was verified with, so each
	// set of authorities has its own configuration, and its own ticket keys.
	var current atomic.Pointer[tls.Config]
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := id.provided.clients.Load()
		if c := current.Load(); c != nil && c.ClientCAs == pool {
			return c, nil
		}
		next := base.Clone()
		next.GetConfigForClient, next.ClientCAs = nil, pool
		current.Store(next)
		return next, nil
	}
	return base
}

// ClientAuthorities returns the authorities whose client certificates are accepted now.
func (id *Identity) ClientAuthorities() *x509.CertPool {
	if provided := id.provided.clients.Load(); provided != nil {
		return provided
	}
	own := x509.NewCertPool()
	id.addAuthorities(own)
	return own
}
