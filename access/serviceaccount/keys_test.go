package serviceaccount_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/access/serviceaccount"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

// TestKeys: replicas share their keys. A key is followed by another after a month, and verifies until the last token that
// it signed has ended. Without the Secret all tokens end.
func TestKeys(t *testing.T) {
	const month = 30 * 24 * time.Hour
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		st := storetest.Run(t, store.Options{DB: db})
		storetest.Create(t, st, storetest.Namespace(t, "kube-system"))
		w := objects.Writer{Store: st, Kinds: kind.NewRegistry(builtin.Kinds())}
		now := time.Now()
		open := func() *serviceaccount.Keys {
			t.Helper()
			k := serviceaccount.NewKeys(w, slog.New(slog.DiscardHandler), func() time.Time { return now })
			if err := k.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			return k
		}
		first := open()
		token, err := first.Sign(map[string]any{"a": "b"})
		if err != nil {
			t.Fatal(err)
		}
		old, ok := first.Verify(token)
		if !ok {
			t.Fatal("a key does not know its own token")
		}
		for _, step := range []struct {
			what        string
			after       time.Duration
			keys        int
			signs, good bool // the first key
		}{
			{"at once", 0, 1, true, true},
			{"before a month", month - time.Minute, 1, true, true},
			{"after a month", time.Minute, 2, true, true}, // the new key is not known everywhere
			{"a minute later", time.Minute, 2, false, true},
			{"after two months", month, 3, false, true},
			{"after three months", month, 3, false, false},
		} {
			now = now.Add(step.after)
			again := open()
			set := (&serviceaccount.Authority{Keys: again}).JWKS().Keys
			id, ok := again.Verify(token)
			if len(set) != step.keys || ok != step.good || again.Known(old) != step.good || ok && id != old {
				t.Errorf("%s: %d keys, the first verifies: %v", step.what, len(set), ok)
			}
			next, err := again.Sign(map[string]any{})
			if err != nil {
				t.Fatal(err)
			}
			if by, ok := again.Verify(next); !ok || (by == old) != step.signs {
				t.Errorf("%s: signed by %q, the first is %q", step.what, by, old)
			}
		}

		// A replica that runs follows the Secret.
		following := open()
		storetest.Background(t, following.Run)
		token, err = following.Sign(map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Delete(t.Context(), store.DeleteRequest{Key: object.Key{Kind: object.Secrets, Namespace: "kube-system", Name: "exeunt-service-account-keys"}}); err != nil {
			t.Fatal(err)
		}
		dbtest.Await(t, "a token is bad without its key", func() bool {
			_, ok := following.Verify(token)
			return !ok
		})
	})
}

// TestDamagedKeys: a Secret that is not of keys is not replaced: the error says what is wrong.
func TestDamagedKeys(t *testing.T) {
	for name, value := range map[string]string{"x": "", "1": "x", "2": "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"} {
		st := storetest.Run(t, store.Options{DB: dbtest.Connect(t, dbtest.Open(t, sqldb.SQLite))})
		storetest.Create(t, st, storetest.Namespace(t, "kube-system"))
		w := objects.Writer{Store: st, Kinds: kind.NewRegistry(builtin.Kinds())}
		secrets := corev1.SchemeGroupVersion.WithResource("secrets")
		if err := w.Create(t.Context(), secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "exeunt-service-account-keys"}, Data: map[string][]byte{name: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
		before := st.Revision()
		if err := serviceaccount.NewKeys(w, slog.New(slog.DiscardHandler), time.Now).Load(t.Context()); err == nil || st.Revision() != before {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// TestGivenKeys: keys of files sign and verify, of each type that kube-apiserver takes. Others verify only.
func TestGivenKeys(t *testing.T) {
	t.Parallel()
	write := func(key any) (private, public string) {
		t.Helper()
		signer, ok := key.(crypto.Signer)
		if !ok {
			t.Fatalf("%T", key)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		open, err := x509.MarshalPKIXPublicKey(signer.Public())
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		private, public = filepath.Join(dir, "key"), filepath.Join(dir, "pub")
		for path, block := range map[string]*pem.Block{private: {Type: "PRIVATE KEY", Bytes: der}, public: {Type: "PUBLIC KEY", Bytes: open}} {
			if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return private, public
	}
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	curveKey, curvePublic := write(curve)
	smallKey, smallPublic := write(small)
	load := func(signing string, others ...string) *serviceaccount.Keys {
		t.Helper()
		k := serviceaccount.NewKeys(objects.Writer{}, slog.New(slog.DiscardHandler), time.Now)
		if err := k.Use(signing, others); err != nil {
			t.Fatal(err)
		}
		if err := k.Load(t.Context()); err != nil { // reads no Secret
			t.Fatal(err)
		}
		return k
	}
	one, other, both := load(smallKey), load(curveKey), load(smallKey, curvePublic, smallPublic)
	for name, by := range map[string]*serviceaccount.Keys{"RSA": one, "ECDSA": other} {
		token, err := by.Sign(map[string]any{"a": "b"})
		if err != nil {
			t.Fatal(err)
		}
		for who, c := range map[string]struct {
			keys *serviceaccount.Keys
			want bool
		}{"itself": {by, true}, "both": {both, true}, "RSA": {one, by == one}, "ECDSA": {other, by == other}} {
			if _, ok := c.keys.Verify(token); ok != c.want {
				t.Errorf("a token of %s, by the keys of %s: %v", name, who, ok)
			}
		}
	}
	token, err := both.Sign(map[string]any{"a": "b"})
	if _, ok := one.Verify(token); err != nil || !ok {
		t.Errorf("the first key does not sign: %v", err)
	}
	if err := serviceaccount.NewKeys(objects.Writer{}, slog.New(slog.DiscardHandler), time.Now).Use(smallPublic, nil); err == nil {
		t.Error("a public key signs")
	}
}
