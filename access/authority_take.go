package access

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

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
