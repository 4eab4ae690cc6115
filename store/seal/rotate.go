package seal

import (
	"errors"
	"fmt"
	"os"
	"slices"

	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/internal/durable"
	"github.com/exeunt/exeunt/internal/lockfile"
)

// A rotation changes the file of keys three times at most, and each change replaces
// the whole file: RotateFile puts a new key first, SealWith another one (the way
// back), FinishFile removes all but the first. Servers read the file at their start.
// At any moment of it they may start: a key that seals is in the file, and a file
// that loses a key stays beside it under the name of that key.

// ChangeFile does one step: FinishFile, SealWith a key, or RotateFile.
func ChangeFile(path string, finish bool, with string) (keys *Keys, before string, err error) {
	switch {
	case finish:
		return FinishFile(path)
	case with != "":
		keys, err = SealWith(path, with)
	default:
		keys, err = RotateFile(path)
	}
	return keys, "", err
}

var errNoRotation = errors.New("it has one key, so no rotation is under way")

// RotateFile puts a new key first in a file with one key. The key before stays.
func RotateFile(path string) (*Keys, error) {
	return changeFile(path, func(keys []apiserverv1.Key) ([]apiserverv1.Key, error) {
		if len(keys) > 1 {
			return nil, fmt.Errorf("it has %d keys, so a rotation is under way: end it with --finish, or go back with --seal-with", len(keys))
		}
		return append([]apiserverv1.Key{generateKey()}, keys...), nil
	})
}

// SealWith puts a key of a file first. It may be repeated.
func SealWith(path, name string) (*Keys, error) {
	return changeFile(path, func(keys []apiserverv1.Key) ([]apiserverv1.Key, error) {
		if len(keys) == 1 {
			return nil, errNoRotation
		}
		i := slices.IndexFunc(keys, func(k apiserverv1.Key) bool { return k.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("it has no key %q", name)
		}
		chosen := keys[i]
		return append([]apiserverv1.Key{chosen}, slices.Delete(keys, i, i+1)...), nil
	})
}

// FinishFile leaves the first key alone in a file. A copy of the file as it was is made first.
func FinishFile(path string) (keys *Keys, before string, err error) {
	keys, err = changeFile(path, func(keys []apiserverv1.Key) ([]apiserverv1.Key, error) {
		if len(keys) == 1 {
			return nil, errNoRotation
		}
		before = path + "." + keys[1].Name
		data, err := os.ReadFile(path)
		if err == nil {
			err = durable.WriteFile(before, data, durable.KeepOwner)
		}
		return keys[:1], err
	})
	return keys, before, err
}

// changeFile replaces a file by one with other keys. Commands that change it at once are refused: a
// server could have begun to seal with a key that the other command replaces.
func changeFile(path string, change func([]apiserverv1.Key) ([]apiserverv1.Key, error)) (keys *Keys, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("rotate the key of Secrets: %w", err)
	}
	locked, err := lockfile.TryLock(file)
	if err != nil || !locked {
		return nil, errors.Join(fmt.Errorf("rotate the key of Secrets: another command changes %s", path), err, file.Close())
	}
	defer func() { err = errors.Join(err, lockfile.Unlock(file)) }()
	opened, openedErr := file.Stat()
	named, namedErr := os.Stat(path)
	if err := errors.Join(openedErr, namedErr); err != nil {
		return nil, fmt.Errorf("rotate the key of Secrets: %w", err)
	}
	if !os.SameFile(opened, named) { // another command has replaced it before we had the lock
		return nil, fmt.Errorf("rotate the key of Secrets: another command has changed %s: look at it first", path)
	}
	if _, err := Load(path); err != nil {
		return nil, err
	}
	if keys, err = replaceKeys(path, change); err != nil {
		return nil, fmt.Errorf("rotate the key of Secrets in %s: %w", path, err)
	}
	return keys, nil
}

// replaceKeys writes a file that Load has accepted with other keys. Comments are not kept.
func replaceKeys(path string, change func([]apiserverv1.Key) ([]apiserverv1.Key, error)) (*Keys, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c apiserverv1.EncryptionConfiguration
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return nil, err
	}
	var with []*apiserverv1.AESConfiguration
	for _, p := range c.Resources[0].Providers {
		if p.AESGCM != nil {
			with = append(with, p.AESGCM)
		}
	}
	if len(with) != 1 {
		return nil, fmt.Errorf("it has %d lists of keys (aesgcm): put all keys into one", len(with))
	}
	if with[0].Keys, err = change(with[0].Keys); err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return nil, err
	}
	text = append([]byte(fileHeader), text...)
	keys, err := Parse(text, path)
	if err != nil {
		return nil, err
	}
	return keys, durable.WriteFile(path, text, durable.KeepOwner)
}
