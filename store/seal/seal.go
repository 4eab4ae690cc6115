// Package seal encrypts the bodies of objects before they reach the database,
// with keys that are not in it. It promises:
//
//   - A sealed body opens only with its key, and only for the object that it was
//     sealed for: kind, namespace, name and uid are authenticated with it.
//   - If a body does not open, the error names the key and the remedy.
//   - A body that was stored before there were keys is returned unchanged.
//
// The cipher is AES-256-GCM under a key that is derived for each body (HKDF with
// 32 random bytes), as in kube-apiserver's KMS v2: the number of bodies that one
// key can seal has no practical limit.
//
// Begin with Keys; Load reads them from a file, RotateFile changes the file.
// Database has what concerns the keys of all replicas.
package seal

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/internal/durable"
	"github.com/exeunt/exeunt/internal/pattern"
	"github.com/exeunt/exeunt/object"
)

// mark begins every sealed body; the key's name and a colon follow. The body of
// an object is JSON and begins with a brace.
const mark = "exeunt:seal:v1:"

// Keys are the keys of a server, and the kinds that they seal. A nil *Keys seals
// nothing. It is safe for concurrent use.
type Keys struct {
	source string // the file, for messages
	kinds  []string
	keys   []key // the first seals; all can open
}

type key struct {
	name   string
	cipher value.Transformer
}

// Object says which object a body belongs to.
type Object struct {
	object.Key
	UID string
}

// Of is the Object of a body.
func Of(o *object.Object) Object { return Object{Key: o.Key, UID: string(o.UID)} }

// authenticated is the data that a sealed body is bound to. No part contains NUL.
func (o Object) authenticated() value.DefaultContext {
	return value.DefaultContext(strings.Join([]string{o.Kind, o.Namespace, o.Name, o.UID}, "\x00"))
}

func (o Object) String() string {
	return fmt.Sprintf("%s %s/%s (%s)", o.Kind, o.Namespace, o.Name, o.UID)
}

// Seals reports whether the bodies of a kind are sealed. kind is a storage name:
// secrets, widgets.example.com.
func (k *Keys) Seals(kind string) bool { return k != nil && slices.Contains(k.kinds, kind) }

// Kinds are the sealed kinds.
func (k *Keys) Kinds() []string { return slices.Clone(k.kinds) }

// Names are the names of the keys. The first one seals.
func (k *Keys) Names() []string {
	names := make([]string, len(k.keys))
	for i := range k.keys {
		names[i] = k.keys[i].name
	}
	return names
}

// Source is the file that the keys come from.
func (k *Keys) Source() string { return k.source }

func (k *Keys) find(name string) *key {
	if k != nil {
		if i := slices.IndexFunc(k.keys, func(k key) bool { return k.name == name }); i >= 0 {
			return &k.keys[i]
		}
	}
	return nil
}

// Has reports whether there is a key of this name.
func (k *Keys) Has(name string) bool { return k.find(name) != nil }

// Prefix is the beginning of all bodies that a key has sealed.
func Prefix(name string) []byte { return []byte(mark + name + ":") }

// SealedBy is the name of the key that sealed a stored body. False: the body is not
// sealed.
func SealedBy(stored []byte) (name string, sealed bool) {
	rest, sealed := bytes.CutPrefix(stored, []byte(mark))
	if !sealed {
		return "", false
	}
	before, _, _ := bytes.Cut(rest, []byte(":"))
	return string(before), true
}

// Seal encrypts a body with the key of this name.
func (k *Keys) Seal(name string, o Object, body []byte) ([]byte, error) {
	with := k.find(name)
	if with == nil {
		return nil, fmt.Errorf("seal %s: %w", o, k.missing(name))
	}
	sealed, err := with.cipher.TransformToStorage(context.Background(), body, o.authenticated())
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", o, err)
	}
	return append(Prefix(name), sealed...), nil
}

// Open decrypts a stored body. A body that is not sealed is returned unchanged.
func (k *Keys) Open(o Object, stored []byte) ([]byte, error) {
	name, sealed := SealedBy(stored)
	if !sealed {
		return stored, nil
	}
	with := k.find(name)
	if with == nil {
		return nil, fmt.Errorf("open %s: %w", o, k.missing(name))
	}
	content, whole := bytes.CutPrefix(stored, Prefix(name))
	body, _, err := with.cipher.TransformFromStorage(context.Background(), content, o.authenticated())
	if err != nil || !whole {
		return nil, fmt.Errorf("open %s: its content does not open with key %q: the row was changed, or holds the content of another object; "+
			"restore the row from a backup", o, name)
	}
	return body, nil
}

// Unseal opens the body of an object that was read from the table changes.
func (k *Keys) Unseal(o *object.Object) (err error) {
	o.Body, err = k.Open(Of(o), o.Body)
	return err
}

// MissingKeyError says that this server lacks a key that it needs.
type MissingKeyError struct{ Name, Source string }

func (e *MissingKeyError) Error() string {
	if e.Source == "" {
		return fmt.Sprintf("it is sealed with key %q, and this server has no keys", e.Name)
	}
	return fmt.Sprintf("it needs key %q, which %s does not have: add that key to the end of the list and start again", e.Name, e.Source)
}

func (k *Keys) missing(name string) error {
	if k == nil {
		return &MissingKeyError{Name: name}
	}
	return &MissingKeyError{Name: name, Source: k.source}
}

// The check value of a key is a known text, sealed with it: a server that can open
// it has the same key.
const checkText = "exeunt"

func checkObject(name string) Object { return Object{Key: object.Key{Kind: "seal_keys", Name: name}} }

// CheckValue makes the check value of a key.
func (k *Keys) CheckValue(name string) ([]byte, error) {
	return k.Seal(name, checkObject(name), []byte(checkText))
}

// Matches reports whether the key of this name made the check value.
func (k *Keys) Matches(name string, check []byte) bool {
	text, err := k.Open(checkObject(name), check)
	return err == nil && string(text) == checkText
}

func newKey(name string, secret []byte) (key, error) {
	cipher, err := aes.NewHKDFExtendedNonceGCMTransformer(secret)
	return key{name: name, cipher: cipher}, err
}

// Mark is the beginning of every sealed body.
func Mark() []byte { return []byte(mark) }

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
	if err = errors.Join(err, file.Sync(), file.Close(), durable.SyncFolder(filepath.Dir(path))); err != nil {
		return nil, fmt.Errorf("make a key for Secrets: %w", errors.Join(err, os.Remove(path)))
	}
	return Parse([]byte(text), path)
}

const fileHeader = `# The key that seals Secrets in the database. Keep a copy of this file, apart
# from the database's backup: without it the Secrets cannot be read.
# To use a new key: exeunt keys rotate FILE
`

// generate makes a configuration.
func generate() string {
	made := generateKey()
	return fmt.Sprintf(fileHeader+`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm:
      keys:
      - name: %s
        secret: %s
`, made.Name, made.Secret)
}

// generateKey makes a key with a random name, so that keys of two servers have different names.
func generateKey() apiserverv1.Key {
	secret, name := make([]byte, keyBytes), make([]byte, 4)
	_, _ = rand.Read(secret) // never fails
	_, _ = rand.Read(name)
	return apiserverv1.Key{Name: "key-" + hex.EncodeToString(name), Secret: base64.StdEncoding.EncodeToString(secret)}
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

var keyName = pattern.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

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
		if !keyName().MatchString(configured.Name) {
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
