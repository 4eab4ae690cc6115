package access

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// start is the fixed time at which the tests begin, so that expiry times are exact.
var start = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

var hosts = []string{"localhost", "127.0.0.1"}

func open(t *testing.T, dir string, hosts []string, now time.Time) *Identity {
	t.Helper()
	id, err := Open(dir, hosts, now)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// leaf returns the serving certificate.
func leaf(t *testing.T, id *Identity) *x509.Certificate {
	t.Helper()
	cert, err := x509.ParseCertificate(id.serving.Load().Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestOpenKeepsWhatFits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	first := open(t, dir, hosts, start)
	again := open(t, dir, hosts, start.Add(24*time.Hour))
	if !first.Authority.Equal(again.Authority) {
		t.Error("the authority was made twice")
	}
	if usage := leaf(t, first).KeyUsage; usage != x509.KeyUsageDigitalSignature {
		t.Errorf("the serving certificate is to be used as %v", usage)
	}
	if !leaf(t, first).Equal(leaf(t, again)) {
		t.Error("the serving certificate was made twice")
	}
	if fewer := open(t, dir, hosts[:1], start); !leaf(t, first).Equal(leaf(t, fewer)) {
		t.Error("a certificate that covers more than it must was replaced")
	}
}

// TestOpenRenews: certificates that are no longer valid are replaced; the authority that
// clients trust stays.
func TestOpenRenews(t *testing.T) {
	tests := []struct {
		name  string
		hosts []string
		now   time.Time
		want  bool
	}{
		{"long before its end", hosts, start.Add(certLife - renewBefore - time.Minute), false},
		{"shortly before its end", hosts, start.Add(certLife - renewBefore + time.Minute), true},
		{"after its end", hosts, start.Add(certLife + time.Hour), true},
		{"a name is missing", append([]string{"db.example"}, hosts...), start, true},
		{"an address is missing", append([]string{"10.0.0.7"}, hosts...), start, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			first := open(t, dir, hosts, start)
			second := open(t, dir, test.hosts, test.now)
			if renewed := !leaf(t, first).Equal(leaf(t, second)); renewed != test.want {
				t.Errorf("renewed: %v, want %v", renewed, test.want)
			}
			if !first.Authority.Equal(second.Authority) {
				t.Error("the authority was replaced too")
			}
			pool := x509.NewCertPool()
			pool.AddCert(second.Authority)
			for _, host := range test.hosts {
				if _, err := leaf(t, second).Verify(x509.VerifyOptions{DNSName: host, Roots: pool, CurrentTime: test.now}); err != nil {
					t.Errorf("as %s: %v", host, err)
				}
			}
		})
	}
}

// TestOpenReplacesCertificateOfAnotherAuthority: a replica that gets the shared authority must not keep
// a certificate of its former one.
func TestOpenReplacesCertificateOfAnotherAuthority(t *testing.T) {
	mine, fleet := t.TempDir(), t.TempDir()
	before := open(t, mine, hosts, start)
	shared := open(t, fleet, hosts, start)
	for _, name := range []string{"ca.crt", "ca.key"} {
		data, err := os.ReadFile(filepath.Join(fleet, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mine, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	after := open(t, mine, hosts, start)
	if !after.Authority.Equal(shared.Authority) || leaf(t, before).Equal(leaf(t, after)) {
		t.Fatal("the authority that was put in place is not used")
	}
	if err := leaf(t, after).CheckSignatureFrom(shared.Authority); err != nil {
		t.Error(err)
	}
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	id := open(t, dir, hosts, start)
	if err := id.WriteKubeconfig(filepath.Join(dir, "kubeconfig"), "https://localhost:1", time.Now()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o700 {
		t.Errorf("directory has mode %o, want 700", mode)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o, want 600", e.Name(), mode)
		}
		names = append(names, e.Name())
	}
	if got, want := strings.Join(names, " "), "admin.crt admin.key ca.crt ca.key kubeconfig serving.crt serving.key"; got != want {
		t.Errorf("files: %s; want %s", got, want)
	}
}

// TestDamagedAuthority: an invalid authority is never replaced silently, since that would lock
// out every client. The error names the file.
func TestDamagedAuthority(t *testing.T) {
	garbage := []byte("not a certificate\n")
	tests := []struct {
		name   string
		damage func(t *testing.T, dir string)
		now    time.Time
		want   []string
	}{
		{"certificate is garbage", replace("ca.crt", garbage), start, []string{"certificate authority", "ca.crt", "not one PEM certificate"}},
		{"another certificate follows", func(t *testing.T, dir string) {
			replace("ca.crt", slices.Concat(contentOf(t, dir, "ca.crt"), contentOf(t, dir, "serving.crt")))(t, dir)
		}, start, []string{"ca.crt", "not one PEM certificate"}},
		{"the previous one is damaged", replace(previousFile, encodeCerts(&x509.Certificate{Raw: garbage})), start, []string{previousFile}},
		{"the previous one cannot be read", block(previousFile), start, []string{previousFile}},
		{"certificate is empty", replace("ca.crt", nil), start, []string{"certificate authority", "ca.crt"}},
		{"key is garbage", replace("ca.key", garbage), start, []string{"certificate authority", "ca.key"}},
		{"key is missing", remove("ca.key"), start, []string{"ca key", "no such file"}},
		{"key is another's", func(t *testing.T, dir string) {
			copyFile(t, filepath.Join(dir, "serving.key"), filepath.Join(dir, "ca.key"))
		}, start, []string{"ca.key", "does not match"}},
		{"it has ended", func(*testing.T, string) {}, start.Add(authorityLife + time.Hour), []string{"authority ended on 2040-05-29", "ca.crt"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			open(t, dir, hosts, start)
			test.damage(t, dir)
			before := contents(t, dir)
			_, err := Open(dir, hosts, test.now)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if !bytes.Equal(before, contents(t, dir)) {
				t.Error("files were changed")
			}
		})
	}
}

// TestDamagedCertificatesAreReplaced: damaged certificates are issued again. One case is a
// crash in the middle of a renewal.
func TestDamagedCertificatesAreReplaced(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string){
		"certificate is garbage": replace("serving.crt", []byte("x")),
		"certificate is missing": remove("serving.crt"),
		"key is garbage":         replace("serving.key", []byte("x")),
		"key is missing":         remove("serving.key"),
		"key is the next one's": func(t *testing.T, dir string) {
			copyFile(t, filepath.Join(dir, "ca.key"), filepath.Join(dir, "serving.key"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := open(t, dir, hosts, start)
			damage(t, dir)
			second := open(t, dir, hosts, start)
			if leaf(t, first).Equal(leaf(t, second)) {
				t.Error("the certificate is the old one")
			}
			if third := open(t, dir, hosts, start); !leaf(t, second).Equal(leaf(t, third)) {
				t.Error("the new certificate was not kept")
			}
		})
	}
}

func TestOpenWhereNoDirectoryCanBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(filepath.Join(file, "pki"), hosts, start)
	if err == nil || !strings.HasPrefix(err.Error(), "make certificate directory: ") {
		t.Errorf("err = %v", err)
	}
}

func replace(name string, data []byte) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func remove(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// block puts something in the place of a file that no file can replace.
func block(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.MkdirAll(filepath.Join(dir, name, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func contentOf(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// contents returns every file's name and bytes.
func contents(t *testing.T, dir string) []byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for _, e := range entries {
		all.WriteString(e.Name())
		if !e.IsDir() {
			all.Write(contentOf(t, dir, e.Name()))
		}
	}
	return all.Bytes()
}
