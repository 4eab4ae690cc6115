package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestMigrate: the way back and up again by the commands, which refuse to create a
// database, and a data directory that a server uses.
func TestMigrate(t *testing.T) {
	t.Parallel()
	database, data := dbtest.Migrated(t, sqldb.SQLite), t.TempDir()
	migrate := func(args ...string) (string, error) {
		root := newRoot()
		root.SetArgs(append([]string{"migrate"}, append(args, "--data", data)...))
		var out bytes.Buffer
		root.SetOut(&out)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	for _, step := range []struct{ args, want, not string }{
		{"status", "0010 trace            done     way back, loses", "pending"},
		{"down --to 9", "0010 trace            pending", "0009 backup           pending"},
		{"up", "0010 trace            done", "pending"},
	} {
		out, err := migrate(append(strings.Fields(step.args), "--database", database)...)
		if err != nil || !strings.Contains(out, step.want) || strings.Contains(out, step.not) {
			t.Errorf("exeunt migrate %s: %v\n%s", step.args, err, out)
		}
	}
	if _, err := migrate("down", "--to", "3", "--database", database); err == nil || !strings.Contains(err.Error(), "there is no way back: restore a backup") {
		t.Errorf("down to step 3: %v", err)
	}
	if _, err := migrate("up"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("up without a database: %v", err)
	}
	if _, err := os.Stat(filepath.Join(data, "exeunt.db")); err == nil {
		t.Error("the command made a database")
	}
}

// TestMigrateBesideServer: down is refused while a server has the data directory.
func TestMigrateBesideServer(t *testing.T) {
	p := place{data: filepath.Join(t.TempDir(), "data")}
	s := p.serve(t)
	root := newRoot()
	root.SetArgs([]string{"migrate", "down", "--to", "9", "--data", p.data})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "a server uses the data directory") {
		t.Errorf("down beside a server: %v", err)
	}
	s.stop(t)
}

// TestUpgrade: a server starts on a database with content whose schema is that of the first release, runs all steps since,
// and has everything: objects with uid and version, Secrets, owners, images.
func TestUpgrade(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			p := place{data: filepath.Join(t.TempDir(), "data")}
			flags := []string{"migrate", "down", "--to", "9", "--lose-data", "--data", p.data}
			if engine == sqldb.Postgres {
				p.database = dbtest.Open(t, engine)
				flags = append(flags, "--database", p.database)
			}
			s := p.serve(t)
			core := coreOf(t, p)
			owner, err := core.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
			}}}
			if owned, err = core.ConfigMaps("default").Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token"}, Data: map[string][]byte{"x": []byte("hunter2")}}
			if secret, err = core.Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			layer := s.push(t, "shop/web", "content")
			s.stop(t)

			root := newRoot()
			root.SetArgs(flags)
			root.SetOut(new(bytes.Buffer))
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			s = p.serve(t)
			defer s.stop(t)
			core = coreOf(t, p)
			for name, before := range map[string]*corev1.ConfigMap{"owner": owner, "owned": owned} {
				after, err := core.ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
				if diff := cmp.Diff(before, after); err != nil || diff != "" {
					t.Errorf("%s: %v\n%s", name, err, diff)
				}
			}
			after, err := core.Secrets("default").Get(t.Context(), secret.Name, metav1.GetOptions{})
			if diff := cmp.Diff(secret, after); err != nil || diff != "" {
				t.Errorf("the Secret: %v\n%s", err, diff)
			}
			if code, content := s.send(t, "GET", "/v2/shop/web/blobs/"+layer, ""); code != 200 || content != "content" {
				t.Errorf("the layer: %d %q", code, content)
			}
			if err := core.ConfigMaps("default").Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			dbtest.Until(t, "the dependent goes", func() error {
				_, err := core.ConfigMaps("default").Get(t.Context(), owned.Name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				if err == nil {
					err = errors.New("it is there")
				}
				return err
			})
			if _, err := os.Stat(filepath.Join(p.data, "exeunt.db.step-9")); engine == sqldb.SQLite && err != nil {
				t.Errorf("the copy before the upgrade: %v", err)
			}
		})
	}
}

// coreOf is the administrator's client of a server.
func coreOf(t *testing.T, p place) typedcorev1.CoreV1Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(p.data, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.CoreV1()
}
