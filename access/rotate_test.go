package access

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// side is one end of a connection: what it shows and what it trusts.
type side struct {
	certificate tls.Certificate
	roots       []byte // PEM
}

// client issues a certificate, and trusts what the identity's kubeconfig has.
func (id *Identity) client(t *testing.T) side {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := id.SignClient(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}, PublicKey: &key.PublicKey}, "", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := side{roots: id.AuthorityPEM(), certificate: tls.Certificate{PrivateKey: key}}
	certs, err := readCertsOf(t, text)
	if err != nil {
		t.Fatal(err)
	}
	for _, cert := range certs {
		s.certificate.Certificate = append(s.certificate.Certificate, cert.Raw)
	}
	return s
}

func readCertsOf(t *testing.T, text []byte) ([]*x509.Certificate, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "certs")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return readCerts(name)
}

// meets connects a client with a server. The errors say which of them refuses the other.
func (s side) meets(id *Identity) (ofClient, ofServer error) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.roots)
	server := tls.Server(theirs, id.TLSConfig())
	done := make(chan error, 1)
	go func() {
		err := server.Handshake()
		if err == nil && len(server.ConnectionState().VerifiedChains) == 0 {
			err = os.ErrPermission
		}
		_ = theirs.Close()
		done <- err
	}()
	ofClient = tls.Client(ours, &tls.Config{ServerName: "localhost", RootCAs: roots, Certificates: []tls.Certificate{s.certificate}, MaxVersion: tls.VersionTLS12}).Handshake()
	_ = ours.Close()
	return ofClient, <-done
}

func mustMeet(t *testing.T, what string, s side, id *Identity) {
	t.Helper()
	if ofClient, ofServer := s.meets(id); ofClient != nil || ofServer != nil {
		t.Errorf("%s: the client says %v, the server %v", what, ofClient, ofServer)
	}
}

func openLocal(t *testing.T, dir string) *Identity {
	t.Helper()
	id, err := Open(dir, []string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestRotateAuthority: between the two parts of a rotation, clients and servers of before
// and after accept each other, also those that know only one authority; afterwards only
// the new authority counts.
func TestRotateAuthority(t *testing.T) {
	dir := t.TempDir()
	before := openLocal(t, dir)
	old := before.client(t)
	if err := RotateAuthority(dir, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	between := openLocal(t, dir)
	fresh := between.client(t)
	onlyNew := side{fresh.certificate, encodeCerts(between.Authority)}
	if between.Authority.Equal(before.Authority) || len(between.Expiries()) != 3 {
		t.Errorf("after the rotation: %v, %v", between.Authority.Subject, between.Expiries())
	}
	if cross := between.rotation.cross; !cross.NotAfter.Equal(before.Authority.NotAfter) || cross.SerialNumber.Cmp(between.Authority.SerialNumber) == 0 {
		t.Errorf("the certificate by the old authority, which ends at %v, ends at %v, and has the serial number %v", before.Authority.NotAfter, cross.NotAfter, cross.SerialNumber)
	}
	if shown := between.serving.Load().Certificate; len(shown) != 4 || !bytes.Equal(shown[3], before.Authority.Raw) {
		t.Errorf("the server shows %d certificates, want its own, the authority, that by the old authority, and the old one", len(shown))
	}
	mustMeet(t, "a client of before, which knows only the old authority", old, between)
	mustMeet(t, "a new client", fresh, between)
	mustMeet(t, "a client that knows only the new authority", onlyNew, between)
	mustMeet(t, "a new client at a replica that has not restarted", fresh, before)
	if err := RotateAuthority(dir, time.Now()); err == nil || !strings.Contains(err.Error(), "--finish") {
		t.Errorf("a second rotation: %v", err)
	}
	if err := FinishRotation(dir); err != nil {
		t.Fatal(err)
	}
	after := openLocal(t, dir)
	mustMeet(t, "a new client after the end", fresh, after)
	mustMeet(t, "a client that knows only the new authority, after the end", onlyNew, after)
	if ofClient, _ := old.meets(after); ofClient == nil {
		t.Error("a client that knows only the old authority accepts the server after the end")
	}
	if _, ofServer := (side{old.certificate, fresh.roots}).meets(after); ofServer == nil {
		t.Error("the server accepts a certificate of the old authority after the end")
	}
	if string(after.RetiredPEM()) != string(encodeCerts(before.Authority)) || string(after.AuthorityPEM()) != string(encodeCerts(between.Authority)) {
		t.Error("after the end the old authority is not the retired one")
	}
	if err := FinishRotation(dir); err == nil || !strings.Contains(err.Error(), "no rotation") {
		t.Errorf("a second end: %v", err)
	}
	if err := RotateAuthority(dir, time.Now()); err != nil {
		t.Errorf("the next rotation: %v", err)
	}
	if next := openLocal(t, dir); string(next.RetiredPEM()) != string(encodeCerts(before.Authority)) {
		t.Error("during the next rotation the first authority is not the retired one")
	}
}

// TestRotateCrash: after a crash behind each step of a rotation a server starts, accepts the
// clients of before, which accept it, and the command completes or repeats the rotation.
func TestRotateCrash(t *testing.T) {
	dir := t.TempDir()
	old := openLocal(t, dir).client(t)
	for crash := 0; ; crash++ {
		at := copyDir(t, dir)
		steps, err := rotationSteps(at, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if crash > len(steps) {
			return
		}
		if err := runSteps(steps[:crash]); err != nil {
			t.Fatal(err)
		}
		// The operator repeats the command at once, or servers start before.
		again := copyDir(t, at)
		err = RotateAuthority(again, time.Now())
		if switched := crash >= len(steps)-1; switched != (err != nil) || switched && !strings.Contains(err.Error(), "--finish") {
			t.Fatalf("after %d steps the command says %v", crash, err)
		}
		for _, started := range []*Identity{openLocal(t, at), openLocal(t, again)} {
			mustMeet(t, "a client of before", old, started)
			fresh := started.client(t)
			mustMeet(t, "a new client", fresh, started)
			mustMeet(t, "a new client that knows only the old authority", side{fresh.certificate, old.roots}, started)
		}
		if err := FinishRotation(again); err != nil {
			t.Fatal(err)
		}
		if _, ofServer := old.meets(openLocal(t, again)); ofServer == nil {
			t.Errorf("after %d steps and the end, a client of before is accepted", crash)
		}
	}
}

// TestFinishCrash: a rotation whose end was interrupted has ended, and the command
// completes it.
func TestFinishCrash(t *testing.T) {
	dir := t.TempDir()
	old := openLocal(t, dir).client(t)
	if err := RotateAuthority(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, previousFile), filepath.Join(dir, retiredFile)); err != nil {
		t.Fatal(err)
	}
	after := openLocal(t, dir)
	mustMeet(t, "a new client", after.client(t), after)
	if after.rotation.cross != nil {
		t.Error("the certificate by the old authority is in use")
	}
	if _, ofServer := old.meets(after); ofServer == nil {
		t.Error("a client of before is accepted")
	}
	if err := FinishRotation(dir); err != nil {
		t.Fatal(err)
	}
	if after.has(crossFile) {
		t.Error("the certificate by the old authority is left")
	}
}

// TestTakeRotated: a replica takes the authority of a rotation, also after a crash behind
// each step, and its end.
func TestTakeRotated(t *testing.T) {
	shared, first := t.TempDir(), t.TempDir()
	if err := CreateAuthority(shared, time.Now()); err != nil {
		t.Fatal(err)
	}
	take := func(dir string) *Identity {
		t.Helper()
		if err := TakeAuthority(shared, dir); err != nil {
			t.Fatal(err)
		}
		return openLocal(t, dir)
	}
	old := take(first).client(t)
	if err := RotateAuthority(shared, time.Now()); err != nil {
		t.Fatal(err)
	}
	next, err := (&Identity{dir: shared}).read("ca")
	if err != nil {
		t.Fatal(err)
	}
	beside := map[string][]byte{}
	for _, name := range []string{previousFile, crossFile} {
		if beside[name], err = os.ReadFile(filepath.Join(shared, name)); err != nil {
			t.Fatal(err)
		}
	}
	for crash := range len(replaceSteps("", next, beside)) + 1 {
		at := copyDir(t, first)
		if err := runSteps(replaceSteps(at, next, beside)[:crash]); err != nil {
			t.Fatal(err)
		}
		mustMeet(t, "a client of before, at a server without the flag", old, openLocal(t, copyDir(t, at)))
		started := take(at)
		mustMeet(t, "a client of before", old, started)
		if string(started.authority.cert) != string(next.cert) {
			t.Errorf("after %d steps the replica has another authority", crash)
		}
	}
	late := copyDir(t, first)
	during := take(first)
	if err := FinishRotation(shared); err != nil {
		t.Fatal(err)
	}
	for what, dir := range map[string]string{"a replica": first, "a replica that missed the rotation": late} {
		after := take(dir)
		mustMeet(t, what, during.client(t), after)
		if _, ofServer := old.meets(after); ofServer == nil {
			t.Errorf("%s accepts a client of before after the end", what)
		}
	}
}

// TestRotateKeepsOwner: files that root writes belong to the owner of their directory. As
// another user the test sees its own files.
func TestRotateKeepsOwner(t *testing.T) {
	dir := t.TempDir()
	openLocal(t, dir)
	owner := os.Geteuid()
	if owner == 0 {
		owner = 65532
		if err := os.Chown(dir, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	if err := RotateAuthority(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "ca.key", "ca.lock", previousFile, crossFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := int(info.Sys().(*syscall.Stat_t).Uid); got != owner || info.Mode().Perm() != 0o600 {
			t.Errorf("%s belongs to %d with mode %o", name, got, info.Mode())
		}
	}
}
