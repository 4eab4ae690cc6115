package serviceaccount_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/access/serviceaccount"
	"github.com/exeunt/exeunt/admission/quota"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var (
	namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")
	accounts   = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// cluster is a database with two replicas, each with its own authority: two stores on
// PostgreSQL, one on SQLite, which has one process.
type cluster struct {
	t      *testing.T
	store  *store.Store
	writer objects.Writer
	cas    [2][]byte
	failed rounds
}

// rounds counts the lines of the log that say that a look at all namespaces failed.
type rounds struct{ n atomic.Int64 }

func (r *rounds) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("could not be created")) {
		r.n.Add(1)
	}
	return len(line), nil
}

func newCluster(t *testing.T, engine sqldb.Engine, before ...string) *cluster {
	database := dbtest.Open(t, engine)
	st := openStore(t, database)
	c := &cluster{t: t, store: st, writer: objects.Writer{Store: st, Kinds: kind.NewRegistry(builtin.Kinds())}}
	for _, name := range before {
		c.namespace(name)
	}
	for i := range c.cas {
		if c.cas[i] = newCA(t); i == 1 && engine == sqldb.Postgres {
			st = openStore(t, database)
		}
		writer := objects.Writer{Store: st, Kinds: c.writer.Kinds}
		storetest.Background(t, (&serviceaccount.Defaults{Writer: writer, CA: c.cas[i], Logger: slog.New(slog.NewTextHandler(&c.failed, nil)), Retry: time.Millisecond}).Run)
	}
	return c
}

func openStore(t *testing.T, database string) *store.Store {
	t.Helper()
	db := dbtest.Connect(t, database)
	st, err := store.Open(t.Context(), store.Options{
		DB: db, Logger: slog.New(slog.DiscardHandler), Archive: store.ArchiveOptions{For: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if _, err := quota.New(db, st, kind.NewRegistry(builtin.Kinds()), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	storetest.Background(t, st.Run)
	return st
}

func newCA(t *testing.T) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) namespace(name string) {
	c.t.Helper()
	c.must(c.writer.Create(c.t.Context(), namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

func (c *cluster) remove(key object.Key) {
	c.t.Helper()
	_, err := c.store.Delete(c.t.Context(), store.DeleteRequest{Key: key})
	c.must(err)
}

// complete says why a namespace does not have its two objects, or "".
func (c *cluster) complete(namespace string) string {
	if _, err := c.writer.Get(c.t.Context(), accounts, namespace, "default"); err != nil {
		return err.Error()
	}
	found, err := c.writer.Get(c.t.Context(), configMaps, namespace, "kube-root-ca.crt")
	if err != nil {
		return err.Error()
	}
	data := found.(*corev1.ConfigMap).Data
	if bundle := data["ca.crt"]; len(data) != 1 || len(found.(*corev1.ConfigMap).BinaryData) != 0 || strings.Count(bundle, "BEGIN") != 2 ||
		!strings.Contains(bundle, string(c.cas[0])) || !strings.Contains(bundle, string(c.cas[1])) {
		return fmt.Sprintf("the bundle is %v", data)
	}
	return ""
}

func (c *cluster) until(namespace string) {
	c.t.Helper()
	dbtest.Until(c.t, "namespace "+namespace+" is complete", func() error {
		if why := c.complete(namespace); why != "" {
			return errors.New(why)
		}
		return nil
	})
}

// TestDefaults: namespaces from before the start and new ones get their two objects, once,
// with the authorities of both replicas; what is deleted or changed returns.
func TestDefaults(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			c := newCluster(t, engine, "old", "older")
			c.until("old")
			c.until("older")
			c.namespace("shop")
			c.until("shop")

			c.remove(object.Key{Kind: object.ServiceAccounts, Namespace: "shop", Name: "default"})
			c.until("shop")
			c.remove(object.Key{Kind: object.ConfigMaps, Namespace: "shop", Name: "kube-root-ca.crt"})
			c.until("shop")
			for _, change := range []func(*corev1.ConfigMap){
				func(m *corev1.ConfigMap) { m.Data = map[string]string{"ca.crt": "forged", "more": "x"} },
				func(m *corev1.ConfigMap) { m.BinaryData = map[string][]byte{"more": []byte("x")} },
			} {
				found, err := c.writer.Get(t.Context(), configMaps, "shop", "kube-root-ca.crt")
				c.must(err)
				changed := found.DeepCopyObject().(*corev1.ConfigMap)
				change(changed)
				c.must(c.writer.Update(t.Context(), configMaps, changed, found))
				c.until("shop")
			}
		})
	}
}

// TestDefaultsBesideAFullNamespace: a namespace whose quota has no room for the two objects holds up no other
// one, and gets them when there is room.
func TestDefaultsBesideAFullNamespace(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			c := newCluster(t, engine)
			c.namespace("full")
			c.until("full")
			limits := corev1.SchemeGroupVersion.WithResource("resourcequotas")
			none := corev1.ResourceList{"count/configmaps": resource.MustParse("0"), "count/serviceaccounts": resource.MustParse("0")}
			c.must(c.writer.Create(t.Context(), limits, &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: "full", Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: none},
			}))
			c.remove(object.Key{Kind: object.ServiceAccounts, Namespace: "full", Name: "default"})
			c.remove(object.Key{Kind: object.ConfigMaps, Namespace: "full", Name: "kube-root-ca.crt"})
			for i := range 5 {
				name := fmt.Sprintf("beside-%d", i)
				c.namespace(name)
				c.until(name)
			}
			if why := c.complete("full"); why == "" {
				t.Error("the quota did not hold")
			}
			if n := c.failed.n.Load(); n > 0 {
				t.Errorf("%d looks at all namespaces failed because of one", n)
			}
			c.remove(object.Key{Kind: "resourcequotas", Namespace: "full", Name: "none"})
			c.until("full")
		})
	}
}

// TestDefaultsLeaveTerminatingNamespaces: what a terminating namespace loses does not
// return. Of two deletions of one kind the second is handled after the first.
func TestDefaultsLeaveTerminatingNamespaces(t *testing.T) {
	c := newCluster(t, sqldb.SQLite)
	c.namespace("shop")
	c.namespace("other")
	c.until("shop")
	c.until("other")
	c.remove(object.Key{Kind: object.Namespaces, Name: "shop"}) // it stays, with its finalizer: no collector runs
	for _, key := range []object.Key{{Kind: object.ServiceAccounts, Name: "default"}, {Kind: object.ConfigMaps, Name: "kube-root-ca.crt"}} {
		key.Namespace = "shop"
		c.remove(key)
		key.Namespace = "other"
		c.remove(key)
		c.until("other")
		key.Namespace = "shop"
		if _, err := c.store.Get(t.Context(), key); !object.Is(err, object.NotFound) {
			t.Errorf("%s in a terminating namespace: %v", key.Name, err)
		}
	}
}
