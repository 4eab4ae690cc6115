package seal

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/object"
)

// keyBytes is the length of a key. HKDF needs 32 bytes, so the shorter keys that
// kube-apiserver accepts for aesgcm are refused.
const keyBytes = 32

// Load reads keys from a file in kube-apiserver's format: an
// EncryptionConfiguration of one entry whose provider is aesgcm. Errors:
// fs.ErrNotExist; a file that others can read is refused.
func Load(path string) (*Keys, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the keys of Secrets: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("read the keys of Secrets: every user of this machine can open %s (mode %04o): run chmod 600 %s", path, info.Mode().Perm(), path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the keys of Secrets: %w", err)
	}
	k, err := Parse(data, path)
	if err != nil {
		return nil, fmt.Errorf("read the keys of Secrets from %s: %w", path, err)
	}
	return k, nil
}

// Create writes a file with a new key that seals Secrets, and returns it. The
// file, readable only by its owner, is synced before Create returns: a power cut
// must not lose a key that has sealed something.
func Create(path string) (*Keys, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a key for Secrets: %w", err)
	}
	text := generate()
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Sync(), file.Close(), syncDirectory(filepath.Dir(path))); err != nil {
		return nil, fmt.Errorf("make a key for Secrets: %w", errors.Join(err, os.Remove(path)))
	}
	return Parse([]byte(text), path)
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// generate makes a configuration. The key has a random name, so that keys of two
// servers have different names.
func generate() string {
	secret, name := make([]byte, keyBytes), make([]byte, 4)
	_, _ = rand.Read(secret) // never fails
	_, _ = rand.Read(name)
	return fmt.Sprintf(`# The key that seals Secrets in the database. Keep a copy of this file, apart
# from the database's backup: without it the Secrets cannot be read.
# To use a new key, see "The key of Secrets" in docs/keys.md.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm:
      keys:
      - name: key-%s
        secret: %s
`, hex.EncodeToString(name), base64.StdEncoding.EncodeToString(secret))
}

// Parse reads an EncryptionConfiguration. source names its file, for errors.
func Parse(data []byte, source string) (*Keys, error) {
	var c apiserverv1.EncryptionConfiguration
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return nil, fmt.Errorf("it is not an EncryptionConfiguration: %w", err)
	}
	if c.APIVersion != apiserverv1.SchemeGroupVersion.String() || c.Kind != "EncryptionConfiguration" {
		return nil, fmt.Errorf("it is %s %s, not %s EncryptionConfiguration", c.APIVersion, c.Kind, apiserverv1.SchemeGroupVersion)
	}
	if len(c.Resources) != 1 {
		return nil, fmt.Errorf("resources has %d entries: exactly one is supported, with all kinds and all keys", len(c.Resources))
	}
	k := &Keys{source: source}
	if err := k.addKinds(c.Resources[0].Resources); err != nil {
		return nil, err
	}
	for i, p := range c.Resources[0].Providers {
		if err := k.addProvider(i, p); err != nil {
			return nil, err
		}
	}
	if len(k.keys) == 0 {
		return nil, errors.New("it has no keys: providers needs an aesgcm with at least one")
	}
	return k, nil
}

// readable are kinds whose bodies the database's triggers and the server's own
// tables read. They stay in plain text.
var readable = []string{object.Namespaces, object.Events, "events.events.k8s.io", object.Definitions}

func (k *Keys) addKinds(kinds []string) error {
	for _, kind := range kinds {
		switch {
		case strings.Contains(kind, "*"):
			return fmt.Errorf("resources: %q: wildcards are not supported, name each kind", kind)
		case kind == "" || kind != strings.ToLower(kind):
			return fmt.Errorf("resources: %q is not a kind: write secrets, or widgets.example.com", kind)
		case slices.Contains(readable, kind) || strings.HasSuffix(kind, ".exeunt.dev"):
			return fmt.Errorf("resources: %s cannot be sealed: the server's own tables are made from it", kind)
		}
	}
	if !slices.Contains(kinds, object.Secrets) {
		return errors.New("resources: secrets is missing, and Secrets are always sealed")
	}
	k.kinds = slices.Compact(slices.Sorted(slices.Values(kinds)))
	return nil
}

var keyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (k *Keys) addProvider(i int, p apiserverv1.ProviderConfiguration) error {
	switch {
	case p.Identity != nil && i == 0:
		return errors.New("providers: identity comes first, which would store Secrets in plain text: put aesgcm first")
	case p.Identity != nil:
		return nil // bodies in plain text are always readable
	case p.AESGCM == nil:
		return errors.New("providers: only aesgcm is supported: aescbc and secretbox do not bind a Secret to its name, and kms is not built in")
	}
	for _, configured := range p.AESGCM.Keys {
		if !keyName.MatchString(configured.Name) {
			return fmt.Errorf("key %q: the name must be letters, digits, dots and dashes, at most 63", configured.Name)
		}
		if k.Has(configured.Name) {
			return fmt.Errorf("key %q is there twice", configured.Name)
		}
		secret, err := base64.StdEncoding.DecodeString(configured.Secret)
		if err != nil || len(secret) != keyBytes {
			return fmt.Errorf("key %q: the secret must be %d bytes in base64: head -c %d /dev/urandom | base64", configured.Name, keyBytes, keyBytes)
		}
		made, err := newKey(configured.Name, secret)
		if err != nil {
			return fmt.Errorf("key %q: %w", configured.Name, err)
		}
		k.keys = append(k.keys, made)
	}
	return nil
}
