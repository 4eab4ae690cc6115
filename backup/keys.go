package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const encryptionFile = "encryption.yaml"

// keyFiles are the files, besides pki/, that a server keeps in its data directory. All
// of them have mode 0600, in a backup too.
var keyFiles = []string{"kubeconfig", "registry-token"}

// isKey reports whether a server has a key file of this name.
func isKey(name string) bool {
	if name == encryptionFile || slices.Contains(keyFiles, name) {
		return true
	}
	rest, ok := strings.CutPrefix(name, "pki/")
	return ok && fs.ValidPath(rest) && rest != "."
}

// readKeys reads the certificates, keys and passwords of a server. It reads all of them
// twice, until nothing has changed in between: the server may be renewing a certificate.
func readKeys(s Server) (keys map[string]string, err error) {
	const tries = 5
	for range tries {
		if keys, err = readKeysOnce(s); err != nil {
			return nil, fmt.Errorf("read the keys of the server: %w", err)
		}
		again, err := readKeysOnce(s)
		if err == nil && maps.Equal(keys, again) {
			return keys, nil
		}
	}
	return nil, errors.New("read the keys of the server: the files change all the time")
}

func readKeysOnce(s Server) (map[string]string, error) {
	keys := map[string]string{}
	read := func(name, path string) error {
		content, err := os.ReadFile(path)
		if err == nil {
			keys[name] = string(content)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not every server has every file
		}
		return err
	}
	if err := read(encryptionFile, s.EncryptionConfig); err != nil {
		return nil, err
	}
	for _, name := range keyFiles {
		if err := read(name, filepath.Join(s.Data, name)); err != nil {
			return nil, err
		}
	}
	err := fs.WalkDir(os.DirFS(s.Data), "pki", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		return read(name, filepath.Join(s.Data, filepath.FromSlash(name)))
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s is not the data directory of a server: %w", s.Data, err)
	}
	return keys, err
}
