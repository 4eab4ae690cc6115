package serviceaccount

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"

	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	// secretNamespace and secretName name the Secret with the signing keys. All replicas
	// read it, and it is sealed in the database as every Secret. Deleting it revokes all
	// tokens: the next one is signed by a new key.
	secretNamespace, secretName = metav1.NamespaceSystem, "exeunt-service-account-keys"

	// rotateEvery is the age at which a key is followed by a new one. The old one
	// verifies until the last token that it may have signed has expired.
	rotateEvery = 30 * 24 * time.Hour
	keepFor     = rotateEvery + MaxLife + 24*time.Hour
	// settle is how old a key must be before it signs, if there is an older one: by then
	// every replica knows it.
	settle = time.Minute
)

var secrets = corev1.SchemeGroupVersion.WithResource("secrets")

// Keys are the keys that sign tokens.
type Keys struct {
	writer objects.Writer
	log    *slog.Logger
	now    func() time.Time
	set    atomic.Pointer[[]key] // the newest last
	given  bool                  // by Use: there is no Secret, and no rotation
}

type key struct {
	id        string
	made      time.Time
	algorithm jose.SignatureAlgorithm
	public    crypto.PublicKey
	private   any // nil if it only verifies
}

// NewKeys returns no keys before Load.
func NewKeys(w objects.Writer, log *slog.Logger, now func() time.Time) *Keys {
	k := &Keys{writer: w, log: log, now: now}
	k.set.Store(&[]key{})
	return k
}

// Use takes the keys from files instead of the Secret, as kube-apiserver does: the private key
// of signing signs, and its public key and those of the others verify.
func (k *Keys) Use(signing string, others []string) error {
	private, err := keyutil.PrivateKeyFromFile(signing)
	if err != nil {
		return err
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return fmt.Errorf("%s: %T is no key that signs", signing, private)
	}
	publics := []any{signer.Public()}
	for _, file := range others {
		more, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return err
		}
		publics = append(publics, more...)
	}
	keys := make([]key, len(publics))
	for i, public := range publics {
		if keys[i], err = newKeyOf(public); err != nil {
			return err
		}
	}
	keys[0].private = private
	k.given = true
	k.set.Store(&keys)
	return nil
}

// newKeyOf names a public key as Kubernetes does.
func newKeyOf(public crypto.PublicKey) (key, error) {
	k := key{public: public}
	switch public := public.(type) {
	case *rsa.PublicKey:
		k.algorithm = jose.RS256
	case *ecdsa.PublicKey:
		k.algorithm = map[int]jose.SignatureAlgorithm{256: jose.ES256, 384: jose.ES384, 521: jose.ES512}[public.Params().BitSize]
	}
	if k.algorithm == "" {
		return key{}, fmt.Errorf("a key of type %T cannot be used for tokens: use RSA, or ECDSA with P-256, P-384 or P-521", public)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return key{}, err
	}
	sum := sha256.Sum256(der)
	k.id = base64.RawURLEncoding.EncodeToString(sum[:])
	return k, nil
}

// Load reads the Secret, and adds a key if the newest is old or there is none. Replicas that do it at
// once: one write wins, the others read what it wrote.
func (k *Keys) Load(ctx context.Context) error {
	for !k.given {
		err := k.refreshOnce(ctx)
		if object.Is(err, object.Conflict) || object.Is(err, object.AlreadyExists) {
			continue
		}
		if err != nil {
			return fmt.Errorf("keys of service account tokens: %w", err)
		}
		return nil
	}
	return nil
}

func (k *Keys) refreshOnce(ctx context.Context) error {
	stored, err := k.writer.Get(ctx, secrets, secretNamespace, secretName)
	missing := object.Is(err, object.NotFound)
	if err != nil && !missing {
		return err
	}
	data := map[string][]byte{}
	old, _ := stored.(*corev1.Secret)
	if old != nil {
		data = old.Data
	}
	keys, err := parseKeys(data)
	if err != nil {
		return err
	}
	if n := len(keys); n > 0 && k.now().Sub(keys[n-1].made) < rotateEvery {
		k.set.Store(&keys)
		return nil
	}
	next := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretNamespace, Name: secretName}}
	if old != nil {
		next = old.DeepCopy()
	}
	next.Data = map[string][]byte{}
	for name, value := range data {
		if made, _ := madeAt(name); k.now().Sub(made) < keepFor {
			next.Data[name] = value
		}
	}
	if next.Data[strconv.FormatInt(k.now().Unix(), 10)], err = newKey(); err != nil {
		return err
	}
	if missing {
		err = k.writer.Create(ctx, secrets, next)
	} else {
		err = k.writer.Update(ctx, secrets, next, old)
	}
	if err != nil {
		return err
	}
	if keys, err = parseKeys(next.Data); err == nil {
		k.set.Store(&keys)
		k.log.Info("made a key that signs service account tokens", "keys", len(keys))
	}
	return err
}

// Run follows the Secret and rotates until the context ends.
func (k *Keys) Run(ctx context.Context) error {
	if k.given {
		<-ctx.Done()
		return nil
	}
	return k.writer.Store.Keep(ctx, k.log, "keys of service account tokens could not be read", func(from int64) error {
		if err := k.Load(ctx); err != nil {
			return err
		}
		return k.await(ctx, from)
	})
}

// await returns after a change of the Secret, or after an hour.
func (k *Keys) await(ctx context.Context, from int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Hour, errRotate)
	defer cancel()
	r := store.WatchRequest{Kind: object.Secrets, Namespace: secretNamespace, Name: secretName, From: from}
	err := k.writer.Store.Follow(ctx, r, func([]*store.Event) error { return errRotate })
	if errors.Is(err, errRotate) || errors.Is(context.Cause(ctx), errRotate) {
		return nil
	}
	return err
}

var errRotate = fmt.Errorf("time to look at the keys")

// signing returns the key that signs: the newest that every replica knows.
func (k *Keys) signing() key {
	all := *k.set.Load()
	for i := len(all) - 1; i > 0; i-- {
		if all[i].private != nil && k.now().Sub(all[i].made) >= settle {
			return all[i]
		}
	}
	return all[0]
}

func newKey() ([]byte, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// madeAt reads the name of a key: the Unix time at which it was made.
func madeAt(name string) (time.Time, error) {
	seconds, err := strconv.ParseInt(name, 10, 64)
	return time.Unix(seconds, 0), err
}

func parseKeys(data map[string][]byte) (keys []key, err error) {
	for name, value := range data {
		made, err := madeAt(name)
		if err != nil {
			return nil, fmt.Errorf("secret %s: %q is not a time", secretName, name)
		}
		block, _ := pem.Decode(value)
		if block == nil {
			return nil, fmt.Errorf("secret %s: %s is not PEM", secretName, name)
		}
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		private, ok := parsed.(*ecdsa.PrivateKey)
		if err != nil || !ok {
			return nil, fmt.Errorf("secret %s: %s is not an ECDSA key", secretName, name)
		}
		k, err := newKeyOf(&private.PublicKey)
		if err != nil {
			return nil, err
		}
		k.made, k.private = made, private
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int { return a.made.Compare(b.made) })
	return keys, nil
}

// Sign returns a JWT of all these claims, signed by the key that signs now.
func (k *Keys) Sign(claims ...any) (string, error) {
	by := k.signing()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: by.algorithm, Key: jose.JSONWebKey{Key: by.private, KeyID: by.id}}, nil)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	builder := jwt.Signed(signer)
	for _, c := range claims {
		builder = builder.Claims(c)
	}
	return builder.CompactSerialize()
}

// Verify reads the claims of a JWT that one of the keys signed, and returns the id of
// that key. It checks the signature and nothing else. False: not such a token.
func (k *Keys) Verify(token string, claims ...any) (id string, ok bool) {
	parsed, err := jwt.ParseSigned(token)
	if err != nil || len(parsed.Headers) != 1 {
		return "", false
	}
	header := parsed.Headers[0]
	for _, by := range *k.set.Load() { // a token need not name its key
		if (header.KeyID == "" || header.KeyID == by.id) && header.Algorithm == string(by.algorithm) && parsed.Claims(by.public, claims...) == nil {
			return by.id, true
		}
	}
	return "", false
}

// Known reports whether the key with this id still verifies.
func (k *Keys) Known(id string) bool {
	return slices.ContainsFunc(*k.set.Load(), func(c key) bool { return c.id == id })
}
