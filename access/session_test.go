package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/rbac"
	"github.com/exeunt/exeunt/access/signing"
)

// TestReauthenticate: the certificate of a session is verified as that of a new connection
// is: by the authorities of now, for a client, within its time.
func TestReauthenticate(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	id, foreign := open(t, filepath.Join(dir, "own"), hosts, now), open(t, filepath.Join(dir, "foreign"), hosts, now)
	f := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), ClientCA: filepath.Join(dir, "clients.crt")}
	copyFiles(t, foreign, f)
	if err := id.UseFiles(Files{ClientCA: f.ClientCA}); err != nil {
		t.Fatal(err)
	}
	control := NewControl(directory.Of(rbac.Objects{}), Config{Authorities: id.ClientAuthorities})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issued := func(by *Identity, at time.Time) Credential {
		t.Helper()
		request := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Organization: []string{"ops"}}, PublicKey: &key.PublicKey}
		text, err := by.SignClient(request, "", time.Hour, at)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		return Credential{Chain: [][]byte{block.Bytes}}
	}
	guest := issued(foreign, now)
	is := func(what string, c Credential, want bool) {
		t.Helper()
		u, ok := control.Reauthenticate(t.Context(), c)
		if ok != want || ok && (u.GetName() != "jane" || !slices.Equal(u.GetGroups(), []string{"ops", "system:authenticated"})) {
			t.Errorf("%s: %v, %v, want %v", what, u, ok, want)
		}
	}
	is("a certificate", issued(id, now), true)
	is("one of --client-ca-file", guest, true)
	is("one that has expired", issued(id, now.Add(-2*time.Hour)), false)
	is("one of the future", issued(id, now.Add(time.Hour)), false)
	is("a serving certificate", Credential{Chain: id.serving.Load().Certificate}, false)
	is("bytes", Credential{Chain: [][]byte{[]byte("x")}}, false)
	is("nothing", Credential{}, false)
	is("a token that nobody has", Credential{Token: "exeunt_x"}, false)
	// During a rotation, a replica that knows only the previous authority accepts what the new one signs.
	rotated := copyDir(t, filepath.Join(dir, "own"))
	if err := RotateAuthority(rotated, now); err != nil {
		t.Fatal(err)
	}
	fresh := Credential{Chain: openLocal(t, rotated).client(t).certificate.Certificate}
	if u, ok := control.Reauthenticate(t.Context(), fresh); !ok || u.GetName() != "jane" {
		t.Errorf("a certificate of the next authority: %v, %v", u, ok)
	}
	copyFiles(t, id, f) // the foreign authority leaves the file
	if changed, err := id.Reload(); !changed || err != nil {
		t.Fatalf("reload: %v, %v", changed, err)
	}
	is("one of an authority that has left", guest, false)
	control.authorities = nil
	is("a certificate, without authorities", issued(id, now), false)

	// A ServiceAccount that does not exist cannot sign in, with or without a uid.
	if u, ok := control.Current(&user.DefaultInfo{Name: "system:serviceaccount:n:a"}); ok {
		t.Errorf("a ServiceAccount that does not exist is %v", u)
	}
	// Only the server says that a User asks for a certificate.
	csr := &certificatesv1.CertificateSigningRequest{}
	control.SetRequestor(&user.DefaultInfo{Name: "eve", Extra: map[string][]string{signing.UserKey: {"of-jane"}, "a": {"b"}}}, csr)
	if csr.Spec.Username != "eve" || len(csr.Spec.Extra) != 1 || csr.Spec.Extra["a"][0] != "b" {
		t.Errorf("the requestor is %+v", csr.Spec)
	}

	// Of a request with a certificate and a token, the certificate counts, as for the API.
	leaf, err := x509.ParseCertificate(guest.Chain[0])
	if err != nil {
		t.Fatal(err)
	}
	both := &http.Request{Header: http.Header{"Authorization": {"Bearer x"}}, TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf, foreign.Authority}, {leaf}}}}
	if c, ok := CredentialOf(both); !ok || c.Token != "" || len(c.Chain) != 2 {
		t.Errorf("the credential is %+v, %v", c, ok)
	}
}

// TestRefusalsArePrintable: what a refusal quotes of a header is printable, and has at most 100 bytes.
func TestRefusalsArePrintable(t *testing.T) {
	if FromPage(&http.Request{Header: http.Header{"Origin": {"null"}}}) == "" {
		t.Error("a page without an origin is one of a server without a name")
	}
	for value, shown := range map[string]string{
		strings.Repeat("y", 10_000):             strings.Repeat("y", 100) + ")",
		strings.Repeat("y", 99) + "\x1b[31m":    strings.Repeat("y", 99) + "?)",
		"a\r\nb\x00c\x7fd":                      "a??b?c?d)",
		"\xff\xfe é " + strings.Repeat("z", 99): "?? ? " + strings.Repeat("z", 95) + ")",
	} {
		for _, header := range []string{"Sec-Fetch-Site", "Origin"} {
			req := &http.Request{Host: "localhost", Header: http.Header{header: {value}}}
			if got := FromPage(req); !strings.HasSuffix(got, ": "+shown) {
				t.Errorf("%s %.40q: %q", header, value, got)
			}
		}
		req := &http.Request{Host: value}
		if got := Hosts(nil).Foreign(req) + ")"; !strings.HasSuffix(got, " "+shown) {
			t.Errorf("Host %.40q: %q", value, got)
		}
	}
}
