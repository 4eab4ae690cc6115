package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/object"
)

// config is a configuration with keys of these names.
func config(kinds string, names ...string) string {
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [" + kinds + "]\n  providers:\n  - aesgcm:\n      keys:\n"
	for _, name := range names {
		secret := base64.StdEncoding.EncodeToString([]byte((name + strings.Repeat("x", keyBytes))[:keyBytes]))
		text += fmt.Sprintf("      - {name: %q, secret: %q}\n", name, secret)
	}
	return text
}

func parse(t *testing.T, text string) *Keys {
	t.Helper()
	k, err := Parse([]byte(text), "keys.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var token = Object{Key: object.Key{Kind: "secrets", Namespace: "shop", Name: "token"}, UID: "1"}

func TestSealAndOpen(t *testing.T) {
	k, body := parse(t, config("secrets", "a")), []byte(`{"data":"hunter2"}`)
	sealed, err := k.Seal("a", token, body)
	if err != nil {
		t.Fatal(err)
	}
	again, err := k.Seal("a", token, body)
	if err != nil || bytes.Equal(sealed, again) {
		t.Errorf("the same body was sealed to the same bytes: %v", err)
	}
	if bytes.Contains(sealed, []byte("hunter2")) || !bytes.HasPrefix(sealed, Prefix("a")) {
		t.Errorf("sealed: %q", sealed)
	}
	if opened, err := k.Open(token, sealed); err != nil || !bytes.Equal(opened, body) {
		t.Errorf("opened %q, %v", opened, err)
	}
	if opened, err := k.Open(token, body); err != nil || !bytes.Equal(opened, body) {
		t.Errorf("a plain body opened as %q, %v", opened, err)
	}
}

// TestBoundToItsObject: a sealed body that is moved to another row does not open.
func TestBoundToItsObject(t *testing.T) {
	k := parse(t, config("secrets", "a"))
	sealed, err := k.Seal("a", token, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for what, other := range map[string]Object{
		"kind":      {Key: object.Key{Kind: "configmaps", Namespace: "shop", Name: "token"}, UID: "1"},
		"namespace": {Key: object.Key{Kind: "secrets", Namespace: "evil", Name: "token"}, UID: "1"},
		"name":      {Key: object.Key{Kind: "secrets", Namespace: "shop", Name: "other"}, UID: "1"},
		"uid":       {Key: object.Key{Kind: "secrets", Namespace: "shop", Name: "token"}, UID: "2"},
		"borders":   {Key: object.Key{Kind: "secrets", Namespace: "shopt", Name: "oken"}, UID: "1"},
	} {
		if opened, err := k.Open(other, sealed); err == nil {
			t.Errorf("opened as another %s: %q", what, opened)
		}
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if opened, err := k.Open(token, changed); err == nil && bytes.HasPrefix(changed, Mark()) {
			t.Errorf("opened with byte %d changed: %q", i, opened)
		}
	}
	for i := len(Mark()); i < len(sealed); i++ {
		if opened, err := k.Open(token, sealed[:i]); err == nil {
			t.Errorf("opened when cut to %d bytes: %q", i, opened)
		}
	}
}

func TestRotation(t *testing.T) {
	first, both := parse(t, config("secrets", "a")), parse(t, config("secrets", "b", "a"))
	sealed, err := first.Seal("a", token, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := both.Open(token, sealed); err != nil {
		t.Errorf("the second key does not open: %v", err)
	}
	var missing *MissingKeyError
	if _, err := parse(t, config("secrets", "b")).Open(token, sealed); !errors.As(err, &missing) || missing.Name != "a" {
		t.Errorf("without the key: %v", err)
	}
	if _, err := (*Keys)(nil).Open(token, sealed); !errors.As(err, &missing) {
		t.Errorf("without keys: %v", err)
	}
	check, err := first.CheckValue("a")
	if err != nil || !both.Matches("a", check) {
		t.Errorf("the key does not match its check value: %v", err)
	}
	other := parse(t, strings.Replace(config("secrets", "a"), "YXh4", "YXh5", 1))
	if other.Matches("a", check) {
		t.Error("another key of the same name matches")
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	good := config("secrets", "a")
	for want, text := range map[string]string{
		"not an EncryptionConfiguration": "resources: 3",
		"it is v1 Secret":                "apiVersion: v1\nkind: Secret",
		"unknown field":                  strings.Replace(good, "providers:", "provider:", 1),
		"exactly one is supported":       good + strings.SplitN(good, "resources:\n", 2)[1],
		"wildcards are not supported":    config("secrets, '*.*'", "a"),
		"is not a kind":                  config("secrets, Widgets", "a"),
		`"" is not a kind`:               config("secrets, ''", "a"),
		"namespaces cannot be sealed":    config("secrets, namespaces", "a"),
		"events cannot be sealed":        config("secrets, events", "a"),
		"exeunt.dev cannot be sealed":    config("secrets, repositories.registry.exeunt.dev", "a"),
		"secrets is missing":             config("configmaps", "a"),
		"identity comes first":           strings.Replace(good, "providers:", "providers:\n  - identity: {}", 1),
		"only aesgcm is supported":       strings.Replace(good, "aesgcm", "secretbox", 1),
		"the name must be":               config("secrets", "a:b"),
		"is there twice":                 config("secrets", "a", "a"),
		"must be 32 bytes":               strings.Replace(good, "YXh4", "", 1),
		"it has no keys":                 strings.SplitN(good, "      - {", 2)[0],
	} {
		if _, err := Parse([]byte(text), "keys.yaml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got: %v", want, err)
		}
	}
	for name, text := range map[string]string{
		"other kinds":   config("secrets, configmaps, widgets.example.com", "a"),
		"identity last": good + "  - identity: {}\n",
	} {
		if _, err := Parse([]byte(text), "keys.yaml"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCreateAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	if _, err := Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("load what is not there: %v", err)
	}
	made, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	loaded, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	check, err := made.CheckValue(made.Names()[0])
	if err != nil || !loaded.Matches(made.Names()[0], check) || !loaded.Seals("secrets") || loaded.Seals("configmaps") {
		t.Errorf("what was loaded is not what was made: %v", err)
	}
	if loaded.Source() != path || strings.Join(parse(t, config("secrets, b, a, b", "k")).Kinds(), " ") != "a b secrets" {
		t.Errorf("the keys come from %s", loaded.Source())
	}
	if _, err := Create(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second key replaced the first: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key file that other users can read: %v", err)
	}
}
