package server

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// takeAuthority copies the certificate authority of all replicas (AuthorityDir) into the
// data directory, before the first use. It never replaces another authority there: clients
// of that one would be locked out, so the operator must decide. Each file is written whole
// or not at all, so a start after a crash completes the copy.
func takeAuthority(c Config) error {
	if c.AuthorityDir == "" {
		return nil
	}
	pki := filepath.Join(c.Data, "pki")
	if err := os.MkdirAll(pki, 0o700); err != nil {
		return fmt.Errorf("make certificate directory: %w", err)
	}
	for _, name := range []string{"ca.key", "ca.crt"} {
		shared, err := os.ReadFile(filepath.Join(c.AuthorityDir, name))
		if err != nil {
			return fmt.Errorf("--authority-dir: %w", err)
		}
		own := filepath.Join(pki, name)
		switch existing, err := os.ReadFile(own); {
		case errors.Is(err, fs.ErrNotExist):
			if err := errors.Join(os.WriteFile(own+".new", shared, 0o600), os.Rename(own+".new", own)); err != nil {
				return fmt.Errorf("--authority-dir: %w", err)
			}
		case err != nil:
			return fmt.Errorf("--authority-dir: %w", err)
		case !bytes.Equal(existing, shared):
			return fmt.Errorf("--authority-dir: %s differs from %s: keep a copy of %s, remove it, and give clients new credentials", filepath.Join(c.AuthorityDir, name), own, pki)
		}
	}
	return nil
}
