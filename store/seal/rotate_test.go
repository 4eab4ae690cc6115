package seal

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestRotateFile goes through every step of a rotation. At each moment the file is whole, private, and opens what was
// sealed before.
func TestRotateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	k, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	old := k.Names()[0]
	sealed, err := k.Seal(old, token, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(k *Keys, err error, names ...string) {
		t.Helper()
		if err != nil || !slices.Equal(k.Names(), names) || !slices.Equal(k.Kinds(), []string{"secrets"}) {
			t.Fatalf("%v, %v; want keys %v", k, err, names)
		}
		loaded, err := Load(path)
		if err != nil || !slices.Equal(loaded.Names(), names) {
			t.Fatalf("the file: %v, %v; want keys %v", loaded, err, names)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if _, err := loaded.Open(token, sealed); err != nil && loaded.Has(old) {
			t.Error(err)
		}
	}
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	_, err = SealWith(path, old)
	refused(err, "no rotation is under way")
	_, _, err = FinishFile(path)
	refused(err, "no rotation is under way")
	if err := os.WriteFile(path+".new", []byte("a write that broke off"), 0o644); err != nil {
		t.Fatal(err)
	}
	k, err = RotateFile(path)
	next := k.Names()[0]
	check(k, err, next, old)
	_, err = RotateFile(path)
	refused(err, "a rotation is under way")
	_, err = SealWith(path, "other")
	refused(err, `no key "other"`)
	for range 2 { // the way back may be repeated
		k, err = SealWith(path, old)
		check(k, err, old, next)
	}
	k, err = SealWith(path, next)
	check(k, err, next, old)
	k, before, err := FinishFile(path)
	check(k, err, next)
	if kept, err := Load(before); err != nil || !slices.Equal(kept.Names(), []string{next, old}) {
		t.Errorf("the file before: %v, %v", kept, err)
	}
}

// TestRotateFileAtOnce: of commands that run at once one makes a key.
func TestRotateFileAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	if _, err := Create(path); err != nil {
		t.Fatal(err)
	}
	made := make([]*Keys, 8)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() { made[i], _ = RotateFile(path) })
	}
	all.Wait()
	made = slices.DeleteFunc(made, func(k *Keys) bool { return k == nil })
	loaded, err := Load(path)
	if err != nil || len(made) != 1 || !slices.Equal(loaded.Names(), made[0].Names()) {
		t.Errorf("%d commands made a key; the file: %v, %v", len(made), loaded, err)
	}
}
