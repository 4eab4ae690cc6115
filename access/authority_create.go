package access

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
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
