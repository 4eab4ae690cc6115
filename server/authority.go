package server

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/exeunt/exeunt/access"
)

// takeAuthority copies the certificate authority of all replicas (AuthorityDir) into the
// data directory, before the first use and after a rotation.
func takeAuthority(c Config) error {
	if c.AuthorityDir == "" {
		return nil
	}
	pki := filepath.Join(c.Data, "pki")
	if err := os.MkdirAll(pki, 0o700); err != nil {
		return fmt.Errorf("make certificate directory: %w", err)
	}
	if err := access.TakeAuthority(c.AuthorityDir, pki); err != nil {
		return fmt.Errorf("--authority-dir: %w", err)
	}
	return nil
}
