package access

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/exeunt/exeunt/internal/durable"
	"github.com/exeunt/exeunt/internal/lockfile"
)

// CreateAuthority writes a new certificate authority (ca.crt, ca.key) into a directory
// that has none.
func CreateAuthority(dir string, now time.Time) error {
	id := &Identity{dir: dir}
	for _, name := range []string{"ca.crt", "ca.key"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s exists: a new authority would lock out the clients of the old one", filepath.Join(dir, name))
		}
	}
	_, err := id.newAuthority(now)
	return err
}

// TakeAuthority copies the authority that replicas share into the directory of one of
// them. It replaces another authority only if that is the one before it (a rotation):
// clients of any other would be locked out, so the operator must decide. It may be
// repeated after a crash.
func TakeAuthority(shared, dir string) error {
	if err := completeReplacement(dir); err != nil {
		return err
	}
	from, own := &Identity{dir: shared}, &Identity{dir: dir}
	next, err := from.read("ca")
	if err != nil {
		return err
	}
	current, err := parseCert(next.cert)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(shared, "ca.crt"), err)
	}
	r, err := readRotation(shared, current)
	if err != nil {
		return err
	}
	if err := own.checkReplaceable(next, r, shared); err != nil {
		return err
	}
	beside := map[string][]byte{}
	for _, name := range []string{crossFile, previousFile, retiredFile} {
		data, err := os.ReadFile(filepath.Join(shared, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		beside[name] = data
	}
	steps := replaceSteps(dir, next, beside)
	if same, err := own.read("ca"); err == nil && bytes.Equal(same.cert, next.cert) && bytes.Equal(same.key, next.key) {
		steps = steps[:len(beside)]
	}
	for _, name := range []string{previousFile, crossFile} { // a rotation that was finished
		if _, ok := beside[name]; !ok {
			steps = append(steps, func() error { return removeFile(filepath.Join(dir, name)) })
		}
	}
	return runSteps(steps)
}

// checkReplaceable refuses to replace an authority that is neither the shared one nor the
// one before it.
func (id *Identity) checkReplaceable(next pair, r rotation, shared string) error {
	differs := func(name string) error {
		return fmt.Errorf("%s differs from %s: keep a copy of %s, remove it, and give clients new credentials", filepath.Join(shared, name), filepath.Join(id.dir, name), id.dir)
	}
	var rotated bool
	existing, err := os.ReadFile(filepath.Join(id.dir, "ca.crt"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !bytes.Equal(existing, next.cert):
		cert, err := parseCert(existing)
		rotated = err == nil && slices.ContainsFunc(append(r.previous, r.retired...), cert.Equal)
		if !rotated {
			return differs("ca.crt")
		}
	}
	key, err := os.ReadFile(filepath.Join(id.dir, "ca.key"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && (rotated || bytes.Equal(key, next.key)) {
		return nil
	}
	return errors.Join(err, differs("ca.key"))
}

// A rotation gives a directory with an authority (ca.crt, ca.key) a new one. It has two
// parts. From RotateAuthority on, the new one signs and both are trusted. From
// FinishRotation on, only the new one is. A server reads the directory at its start.
//
// The new authority has two certificates: its own, and one by the previous authority. The
// second goes along with certificates that the new one signs, so clients and replicas
// that know only the previous authority accept them.
const (
	previousFile = "ca-previous.crt" // the authority before, still trusted
	crossFile    = "ca-cross.crt"    // the new authority's key, signed by the previous one
	retiredFile  = "ca-retired.crt"  // the authority before, no longer trusted
	nextFile     = "ca-next"         // .key, .crt: complete, before they replace ca.key, ca.crt
)

// rotation is what a directory has beside the authority. The zero value: no rotation.
type rotation struct {
	previous, retired []*x509.Certificate
	cross             *x509.Certificate // nil if there is none
}

// readRotation reads the files of a rotation. Before ca.crt is replaced, the previous
// authority is the current one, and the cross certificate has another key: both are left
// out.
func readRotation(dir string, current *x509.Certificate) (r rotation, err error) {
	var cross []*x509.Certificate
	for name, into := range map[string]*[]*x509.Certificate{previousFile: &r.previous, retiredFile: &r.retired, crossFile: &cross} {
		if *into, err = readCerts(filepath.Join(dir, name)); err != nil {
			return rotation{}, fmt.Errorf("read certificate authority: %w", err)
		}
	}
	isCurrent := func(c *x509.Certificate) bool { return c.Equal(current) }
	r.previous, r.retired = slices.DeleteFunc(r.previous, isCurrent), slices.DeleteFunc(r.retired, isCurrent)
	if len(r.previous) > 0 && len(cross) > 0 && slices.Equal(cross[0].RawSubjectPublicKeyInfo, current.RawSubjectPublicKeyInfo) {
		r.cross = cross[0]
	}
	return r, nil
}

// chain returns what a server shows beside its certificate and its authority.
func (r rotation) chain() (der [][]byte) {
	if r.cross != nil {
		der = append(der, r.cross.Raw)
	}
	for _, previous := range r.previous {
		der = append(der, previous.Raw)
	}
	return der
}

// crossPEM returns what follows a client certificate.
func (r rotation) crossPEM() []byte {
	if r.cross == nil {
		return nil
	}
	return encodeCerts(r.cross)
}

// addAuthorities adds the authorities whose client certificates are accepted.
func (id *Identity) addAuthorities(pool *x509.CertPool) {
	for _, authority := range append([]*x509.Certificate{id.Authority}, id.rotation.previous...) {
		pool.AddCert(authority)
	}
}

// RotateAuthority makes a new authority that signs from now on, and keeps the certificate
// of the current one as trusted. It may be repeated after a crash.
func RotateAuthority(dir string, now time.Time) error {
	return withLock(dir, func() error {
		if err := completeReplacement(dir); err != nil {
			return err
		}
		steps, err := rotationSteps(dir, now)
		if err != nil {
			return err
		}
		return runSteps(steps)
	})
}

// FinishRotation ends the trust in the previous authority. It may be repeated after a
// crash.
func FinishRotation(dir string) error {
	return withLock(dir, func() error {
		id := &Identity{dir: dir}
		if err := id.openAuthority(time.Now()); err != nil {
			return err
		}
		if len(id.rotation.previous) == 0 && !id.has(crossFile) {
			return fmt.Errorf("%s has no rotation to finish", dir)
		}
		if len(id.rotation.previous) > 0 { // the decisive step
			if err := os.Rename(filepath.Join(dir, previousFile), filepath.Join(dir, retiredFile)); err != nil {
				return fmt.Errorf("finish the rotation: %w", err)
			}
		}
		return removeFile(filepath.Join(dir, crossFile))
	})
}

// rotationSteps prepares a rotation. The directory is in use: a server may start after
// each step.
func rotationSteps(dir string, now time.Time) ([]func() error, error) {
	id := &Identity{dir: dir}
	if !id.has("ca.crt") {
		return nil, fmt.Errorf("%s has no authority: want a directory with ca.crt and ca.key", dir)
	}
	if err := id.openAuthority(now); err != nil {
		return nil, err
	}
	if len(id.rotation.previous) > 0 {
		return nil, fmt.Errorf("%s: a rotation is under way: finish it first, with --finish", dir)
	}
	old, err := tls.X509KeyPair(id.authority.cert, id.authority.key)
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make authority key: %w", err)
	}
	// A name of its own: some clients look for an issuer by its name alone.
	template := authorityTemplate("exeunt-ca-"+now.UTC().Format("20060102T150405"), now)
	next, err := signPair(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("sign the new authority: %w", err)
	}
	template.NotAfter = id.Authority.NotAfter
	cross, err := signPair(template, id.Authority, key, old.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("sign the new authority by the previous one: %w", err)
	}
	return replaceSteps(dir, next, map[string][]byte{crossFile: cross.cert, previousFile: id.authority.cert}), nil
}

// replaceSteps replaces the authority and the files beside it. Before the last two steps
// the old authority is in force, and what stands beside it has no effect. Between them the
// key is new and the certificate old: completeReplacement does the last one.
func replaceSteps(dir string, next pair, beside map[string][]byte) []func() error {
	path := func(name string) string { return filepath.Join(dir, name) }
	var steps []func() error
	for _, name := range []string{crossFile, previousFile, retiredFile} {
		if data, ok := beside[name]; ok {
			steps = append(steps, func() error { return writePrivate(path(name), data) })
		}
	}
	return append(steps,
		func() error { return writePrivate(path(nextFile+".key"), next.key) },
		func() error { return writePrivate(path(nextFile+".crt"), next.cert) },
		func() error { return os.Rename(path(nextFile+".key"), path("ca.key")) },
		func() error { return os.Rename(path(nextFile+".crt"), path("ca.crt")) },
	)
}

func runSteps(steps []func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("replace the authority: %w", err)
		}
	}
	return nil
}

// completeReplacement does the last step of a replacement that ended before it: ca.key
// belongs to ca-next.crt, and not to ca.crt.
func completeReplacement(dir string) error {
	next := filepath.Join(dir, nextFile+".crt")
	nextCert, err := os.ReadFile(next)
	if err != nil {
		return nil // there is none
	}
	key, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil // openAuthority reports it
	}
	if _, err := tls.X509KeyPair(nextCert, key); err != nil {
		return nil // the key is the old one
	}
	return runSteps([]func() error{func() error { return os.Rename(next, filepath.Join(dir, "ca.crt")) }})
}

// withLock keeps two commands from changing a directory at once.
func withLock(dir string, change func() error) (err error) {
	f, err := os.OpenFile(filepath.Join(dir, "ca.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := durable.KeepOwner(f); err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	switch locked, err := lockfile.TryLock(f); {
	case err != nil:
		return fmt.Errorf("lock %s: %w", dir, err)
	case !locked:
		return fmt.Errorf("another command changes the authority in %s", dir)
	}
	return change()
}

func removeFile(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readCerts returns the certificates of a PEM file; nil if there is no file.
func readCerts(name string) (certs []*x509.Certificate, err error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for err == nil {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return certs, nil
		}
		var cert *x509.Certificate
		if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
			certs = append(certs, cert)
		}
	}
	return nil, fmt.Errorf("%s: %w", name, err)
}

func encodeCerts(certs ...*x509.Certificate) (text []byte) {
	for _, cert := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	return text
}
