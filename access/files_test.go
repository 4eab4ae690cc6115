package access

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// copyFiles copies the serving certificate of an identity to two files.
func copyFiles(t *testing.T, from *Identity, to Files) {
	t.Helper()
	for name, target := range map[string]string{"serving.crt": to.Cert, "serving.key": to.Key, "ca.crt": to.ClientCA} {
		data, err := os.ReadFile(filepath.Join(from.dir, name))
		if err == nil {
			err = os.WriteFile(target, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// issuer says who signed the certificate that a server shows to clients of a name.
func issuer(t *testing.T, address, name string) *x509.Certificate {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, ServerName: name})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}

// TestFiles: the certificate in the files is served for its names, and read again when the
// files change, while connections stay open; a broken file changes nothing.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	f := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), ClientCA: filepath.Join(dir, "clients.crt")}
	names := []string{"api.example.com"}
	first, second := open(t, filepath.Join(dir, "first"), names, time.Now().Add(-time.Minute)), open(t, filepath.Join(dir, "second"), names, time.Now())
	copyFiles(t, first, f)
	id := open(t, filepath.Join(dir, "own"), hosts, time.Now())
	if err := id.UseFiles(Files{Cert: f.Cert}); err == nil {
		t.Error("a certificate without its key is accepted")
	}
	if err := id.UseFiles(f); err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Time{
		"authority": id.Authority.NotAfter, "serving": first.serving.Load().Leaf.NotAfter, "client-authority": first.Authority.NotAfter,
	}
	if got := id.Expiries(); !maps.Equal(got, want) {
		t.Errorf("the certificates expire at %v, want %v", got, want)
	}
	older := open(t, filepath.Join(dir, "older"), names, time.Now().Add(-time.Hour))
	for _, order := range [][]*Identity{{older, first}, {first, older}} {
		var both []byte
		for _, by := range order {
			both = append(both, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: by.Authority.Raw})...)
		}
		if got := firstExpiry(both); got == nil || !got.Equal(older.Authority.NotAfter) {
			t.Errorf("the first of two authorities expires at %v, not %v", got, older.Authority.NotAfter)
		}
	}
	server := serve(t, id)
	address := server.Listener.Addr().String()
	signedBy := func(name string, want *Identity) {
		t.Helper()
		if err := issuer(t, address, name).CheckSignatureFrom(want.Authority); err != nil {
			t.Errorf("clients of %q: %v", name, err)
		}
	}
	signedBy("api.example.com", first)
	signedBy("localhost", id)
	signedBy("", id)

	// A client of the first authority keeps its connection when the files change.
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := first.WriteKubeconfig(kubeconfig, server.URL, time.Now()); err != nil {
		t.Fatal(err)
	}
	config, _ := client(t, kubeconfig)
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	newClient := func() *http.Client {
		return &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}}
	}
	get := func(c *http.Client) bool {
		resp, err := c.Get(server.URL)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body) // the connection is used again
		return resp.StatusCode == http.StatusOK
	}
	old := newClient()
	if !get(old) {
		t.Fatal("a client of --client-ca-file is not known")
	}
	if err := os.WriteFile(f.Key, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := id.Reload(); changed || err == nil {
		t.Errorf("a broken key: changed %v, %v", changed, err)
	}
	signedBy("api.example.com", first)
	copyFiles(t, second, f)
	if changed, err := id.Reload(); !changed || err != nil {
		t.Errorf("new files: changed %v, %v", changed, err)
	}
	signedBy("api.example.com", second)
	if !get(old) {
		t.Error("the open connection was dropped")
	}
	if get(newClient()) {
		t.Error("a client of the old authority can still connect")
	}
	if changed, err := id.Reload(); changed || err != nil {
		t.Errorf("the same files: changed %v, %v", changed, err)
	}
}

// TestProtocols: TLS 1.2 with AEAD is the least that the server speaks.
func TestProtocols(t *testing.T) {
	server := serve(t, open(t, t.TempDir(), hosts, time.Now()))
	dial := func(c *tls.Config) error {
		c.InsecureSkipVerify = true
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", server.Listener.Addr().String(), c)
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := dial(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("the server speaks TLS 1.1")
	}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if !slices.Contains(suite.SupportedVersions, tls.VersionTLS12) || slices.Contains(cipherSuites, suite.ID) {
			continue
		}
		if err := dial(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite.ID}}); err == nil {
			t.Errorf("the server speaks %s", suite.Name)
		}
	}
	if err := dial(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}); err != nil {
		t.Errorf("AES-GCM: %v", err)
	}
}
