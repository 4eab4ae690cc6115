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
// The package knows no database. Begin with Keys; config.go reads them from a
// file.
package seal

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/aes"

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

// Seals says whether the bodies of a kind are sealed. kind is a storage name:
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
	if k == nil {
		return nil
	}
	for i := range k.keys {
		if k.keys[i].name == name {
			return &k.keys[i]
		}
	}
	return nil
}

// Has says whether there is a key of this name.
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

// Matches says whether the key of this name made the check value.
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
