package access

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/rbac"
)

// TestFilesThatCannotBeWritten: each step of a rotation, and everything else that writes a file, reports that it could not.
func TestFilesThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	openLocal(t, dir)
	for _, name := range []string{crossFile, previousFile, nextFile + ".key", nextFile + ".crt", "ca.key", "ca.crt"} {
		at := copyDir(t, dir)
		steps, err := rotationSteps(at, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "ca.") {
			remove(name)(t, at)
		}
		block(name)(t, at)
		if err := runSteps(steps); err == nil {
			t.Errorf("%s: the rotation cannot write it, and says nothing", name)
		}
	}
	at := copyDir(t, dir)
	id := openLocal(t, at)
	for _, name := range []string{"kubeconfig", "kubeconfig-later", "other.crt", previousFile} {
		block(name)(t, at)
	}
	if err := id.WriteKubeconfig(filepath.Join(at, "kubeconfig"), "https://localhost:1", time.Now()); err == nil {
		t.Error("a kubeconfig that cannot be written is no error")
	}
	if _, err := id.RenewKubeconfig(filepath.Join(at, "kubeconfig-later"), "https://localhost:1", time.Now().Add(certLife)); err == nil {
		t.Error("a kubeconfig that cannot be renewed is no error")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := authorityTemplate("x", time.Now())
	if _, err := id.sign("other", template, template, key, key); err == nil {
		t.Error("a certificate that cannot be written is no error")
	}
	if err := TakeAuthority(dir, at); err == nil {
		t.Error("the authority before, which cannot be removed, is no error")
	}
}

// TestOtherAuthorities: neither a new authority nor the shared one replaces an authority that clients may know, whole or in
// part, and a directory without one is not rotated.
func TestOtherAuthorities(t *testing.T) {
	shared, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{shared, other} {
		if err := CreateAuthority(dir, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	from := func(dir string, names ...string) string {
		to := t.TempDir()
		for _, name := range names {
			replace(name, contentOf(t, dir, name))(t, to)
		}
		return to
	}
	mixed := from(shared, "ca.crt")
	replace("ca.key", contentOf(t, other, "ca.key"))(t, mixed)
	for what, test := range map[string]struct {
		dir     string
		creates bool
		takes   bool
	}{
		"nothing":                          {t.TempDir(), true, true},
		"the same":                         {from(shared, "ca.crt", "ca.key"), false, true},
		"the same certificate":             {from(shared, "ca.crt"), false, true},
		"the same key":                     {from(shared, "ca.key"), false, true},
		"another":                          {from(other, "ca.crt", "ca.key"), false, false},
		"another certificate":              {from(other, "ca.crt"), false, false},
		"another key":                      {from(other, "ca.key"), false, false},
		"the certificate, and another key": {mixed, false, false},
	} {
		taken := copyDir(t, test.dir)
		before := contents(t, taken)
		if err := TakeAuthority(shared, taken); (err == nil) != test.takes || err != nil && !bytes.Equal(before, contents(t, taken)) {
			t.Errorf("the shared authority in a directory with %s: %v", what, err)
		}
		before = contents(t, test.dir)
		if err := CreateAuthority(test.dir, time.Now()); (err == nil) != test.creates || err != nil && !bytes.Equal(before, contents(t, test.dir)) {
			t.Errorf("a new authority in a directory with %s: %v", what, err)
		}
	}
	replace("ca.crt", []byte("damaged"))(t, other)
	if err := TakeAuthority(other, t.TempDir()); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("a damaged shared authority: %v", err)
	}
	empty := t.TempDir()
	if err := RotateAuthority(empty, time.Now()); err == nil || strings.Contains(string(contents(t, empty)), "ca.crt") {
		t.Errorf("a directory without an authority was rotated: %v", err)
	}
	if err := withLock(shared, func() error { return RotateAuthority(shared, time.Now()) }); err == nil || !strings.Contains(err.Error(), "another command") {
		t.Errorf("two commands at once: %v", err)
	}
}

// TestCertificatesSay: what clients other than ours read in the certificates.
func TestCertificatesSay(t *testing.T) {
	dir := t.TempDir()
	id := open(t, dir, hosts, start)
	if a := id.Authority; a.Subject.CommonName != "exeunt-ca" || !a.IsCA || a.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature {
		t.Errorf("the authority is %v, of %v", a.KeyUsage, a.Subject)
	}
	cert, _, err := id.BrokerFiles(start)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := parseCert([]byte(read(t, cert)))
	if err != nil {
		t.Fatal(err)
	}
	response, ok, err := identify([]*x509.Certificate{broker})
	if err != nil || !ok || response.User.GetName() != "system:exeunt:broker" || !slices.Equal(response.User.GetGroups(), []string{user.AllAuthenticated}) {
		t.Errorf("the broker is %+v, %v", response, err)
	}
	if len(response.User.GetExtra()) == 0 {
		t.Error("the user of a certificate has no extra, which says which certificate it is")
	}
	for what, c := range map[string]*x509.Certificate{"authority": id.Authority, "serving": leaf(t, id), "broker": broker} {
		if !c.NotBefore.Equal(start.Add(-time.Hour)) || !c.BasicConstraintsValid && c.IsCA {
			t.Errorf("the certificate %s begins at %v, want an hour before now", what, c.NotBefore)
		}
	}
}

// TestNoLongerAClient: an expired certificate, and that of a removed User, is an error: the request is not tried as that of a
// client without one, whose token may be good.
func TestNoLongerAClient(t *testing.T) {
	ends := time.Now().Add(-time.Second)
	certificate := &x509.Certificate{Subject: pkix.Name{CommonName: "jane"}, NotAfter: ends}
	request := func() *http.Request {
		return &http.Request{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{certificate}}}}
	}
	c := certificates{directory.Of(rbac.Objects{})}
	if response, ok, err := c.AuthenticateRequest(request()); ok || !errors.Is(err, errExpired) {
		t.Errorf("an expired certificate: %v, %v, %v", response, ok, err)
	}
	certificate.NotAfter = ends.Add(time.Hour)
	if _, ok, err := c.AuthenticateRequest(request()); !ok || err != nil {
		t.Errorf("the same before its end: %v, %v", ok, err)
	}
	certificate.Subject.Names = []pkix.AttributeTypeAndValue{{Type: uidAttribute, Value: UserUIDPrefix + "1"}}
	if response, ok, err := c.AuthenticateRequest(request()); ok || !errors.Is(err, errRevoked) {
		t.Errorf("the certificate of a removed User: %v, %v, %v", response, ok, err)
	}
}

// TestFilesThatCannotBeUsed: a file that an administrator provides and that cannot be used is an error, and the log says each
// fault once.
func TestFilesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	f := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), ClientCA: filepath.Join(dir, "clients.crt")}
	given, id := open(t, filepath.Join(dir, "given"), hosts, time.Now()), open(t, filepath.Join(dir, "own"), hosts, time.Now())
	copyFiles(t, given, f)
	for _, half := range []Files{{Cert: f.Cert}, {Key: f.Key}} {
		if err := id.UseFiles(half); err == nil {
			t.Errorf("%+v: a certificate without its key, or a key alone, is accepted", half)
		}
	}
	if err := id.UseFiles(f); err != nil {
		t.Fatal(err)
	}
	pool := id.ClientAuthorities()
	for _, test := range []struct {
		name   string
		damage func(*testing.T, string)
	}{
		{"tls.crt", remove("tls.crt")}, {"tls.key", replace("tls.key", []byte("x"))}, {"clients.crt", replace("clients.crt", []byte("x"))}, {"clients.crt", remove("clients.crt")},
	} {
		copyFiles(t, given, f)
		test.damage(t, dir)
		if changed, err := id.Reload(); changed || err == nil || !strings.Contains(err.Error(), test.name) || !pool.Equal(id.ClientAuthorities()) {
			t.Errorf("a damaged %s: changed %v, %v", test.name, changed, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- id.WatchFiles(ctx, slog.New(slog.NewTextHandler(&log, nil))) }()
		lines := func(want int, text string) {
			t.Helper()
			time.Sleep(10 * reloadEvery)
			synctest.Wait()
			if got := strings.Count(log.String(), text); got != want {
				t.Errorf("the log says %d times %q, want %d:\n%s", got, text, want, log.String())
			}
		}
		const fault, read = "cannot be used", "were read again"
		lines(1, fault) // the last one of above
		copyFiles(t, given, f)
		lines(1, fault)
		remove("clients.crt")(t, dir)
		lines(2, fault)
		replace("clients.crt", []byte("x"))(t, dir)
		lines(3, fault)
		lines(0, read)
		copyFiles(t, open(t, filepath.Join(dir, "third"), hosts, time.Now()), f)
		lines(1, read)
		lines(3, fault)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestAddress: a client that asks for an address, and so for no name, gets the certificate that has the address.
func TestAddress(t *testing.T) {
	dir := t.TempDir()
	f := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), ClientCA: filepath.Join(dir, "clients.crt")}
	given, id := open(t, filepath.Join(dir, "given"), []string{"127.0.0.1"}, time.Now()), open(t, filepath.Join(dir, "own"), hosts, time.Now())
	copyFiles(t, given, f)
	if err := id.UseFiles(f); err != nil {
		t.Fatal(err)
	}
	address := serve(t, id).Listener.Addr().String()
	for name, want := range map[string]*Identity{"": given, "localhost": id} {
		if err := issuer(t, address, name).CheckSignatureFrom(want.Authority); err != nil {
			t.Errorf("clients of %q: %v", name, err)
		}
	}
}
