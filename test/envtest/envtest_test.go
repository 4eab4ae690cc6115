// Package envtest_test runs controller-runtime's envtest, unchanged, on the programs that
// "exeunt envtest" makes, and "exeunt serve --ephemeral" as the child of another process.
package envtest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/exeunt/exeunt/test/harness"
)

// programs runs "exeunt envtest" and returns the folder that it prints.
func programs(t *testing.T, flags ...string) string {
	t.Helper()
	out, err := exec.Command(exeunt(t), append([]string{"envtest"}, flags...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

var pluginDir = sync.OnceValues(harness.PluginDir)

func exeunt(t *testing.T) string {
	t.Helper()
	dir, err := pluginDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "exeunt")
}

// start starts a control plane and returns a client, and what kube-apiserver prints.
func start(t *testing.T, assets string) (*envtest.Environment, kubernetes.Interface, *bytes.Buffer) {
	t.Helper()
	printed := &bytes.Buffer{}
	env := &envtest.Environment{BinaryAssetsDirectory: assets}
	env.ControlPlane.GetAPIServer().Err = printed
	env.ControlPlane.GetAPIServer().CertDir = t.TempDir() // a restart keeps the certificates
	config, err := env.Start()
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	return env, kubernetes.NewForConfigOrDie(config), printed
}

// world makes a namespace with an owner, its dependent and a pod, deletes the owner, then the
// namespace. It returns the pod.
func world(t *testing.T, c kubernetes.Interface) *corev1.Pod {
	t.Helper()
	ctx := t.Context()
	maps := c.CoreV1().ConfigMaps("shop")
	_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	must(t, err)
	owner, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dependent", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID},
	}}}, metav1.CreateOptions{})
	must(t, err)
	pod, err := c.CoreV1().Pods("shop").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	must(t, maps.Delete(ctx, "owner", metav1.DeleteOptions{}))
	return pod
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAsEnvtest: as on kube-apiserver without controllers, dependents and namespaces stay, there
// are no ServiceAccounts, and pods have no token. The data outlives a restart of kube-apiserver
// and leaves with etcd's folder.
func TestAsEnvtest(t *testing.T) {
	t.Parallel()
	env, c, printed := start(t, programs(t, "--bin-dir", t.TempDir()))
	ctx := t.Context()
	if pod := world(t, c); len(pod.Spec.Volumes) > 0 || pod.Spec.ServiceAccountName != "" {
		t.Errorf("the pod has volumes %v and the account %q", pod.Spec.Volumes, pod.Spec.ServiceAccountName)
	}
	must(t, c.CoreV1().Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{}))

	server := env.ControlPlane.GetAPIServer()
	must(t, server.Stop())
	must(t, server.Start())
	again := kubernetes.NewForConfigOrDie(env.Config)
	harness.Until(t, "an answer after the restart", func() error {
		_, err := again.CoreV1().ConfigMaps("shop").Get(ctx, "dependent", metav1.GetOptions{})
		return err
	})
	shop, err := again.CoreV1().Namespaces().Get(ctx, "shop", metav1.GetOptions{})
	must(t, err)
	if shop.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("the namespace is %s", shop.Status.Phase)
	}
	accounts, err := again.CoreV1().ServiceAccounts("").List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(accounts.Items) > 0 {
		t.Errorf("there are ServiceAccounts: %v", accounts.Items)
	}
	maps, err := again.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(maps.Items) > 0 {
		t.Errorf("there are ConfigMaps: %v", maps.Items)
	}
	shop.Spec.Finalizers = nil
	_, err = again.CoreV1().Namespaces().Finalize(ctx, shop, metav1.UpdateOptions{})
	must(t, err)
	if _, err := again.CoreV1().Namespaces().Get(ctx, "shop", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a suite removes the namespace itself, with its content still there: %v", err)
	}
	if text := printed.String(); strings.Count(text, "ignores") != 2 || !strings.Contains(text, "ignores --service-account-key-file --service-account-signing-key-file\n") {
		t.Errorf("each start names the ignored flags in one line: %s", text)
	}
}

// TestControllers: with --controllers dependents and namespaces leave, and there are
// ServiceAccounts.
func TestControllers(t *testing.T) {
	t.Parallel()
	_, c, _ := start(t, programs(t, "--bin-dir", t.TempDir(), "--controllers"))
	ctx := t.Context()
	world(t, c)
	harness.Until(t, "the dependent to leave", func() error {
		_, err := c.CoreV1().ConfigMaps("shop").Get(ctx, "dependent", metav1.GetOptions{})
		return gone(err)
	})
	harness.Until(t, "the default ServiceAccount", func() error {
		_, err := c.CoreV1().ServiceAccounts("shop").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	must(t, c.CoreV1().Pods("shop").Delete(ctx, "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	must(t, c.CoreV1().Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{}))
	harness.Until(t, "the namespace to leave", func() error {
		_, err := c.CoreV1().Namespaces().Get(ctx, "shop", metav1.GetOptions{})
		return gone(err)
	})
}

func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("still there: %w", err)
}

// TestSetupEnvtest: the folder is where kubebuilder's suites look for it, and kubectl runs
// that of $PATH, or says that there is none.
func TestSetupEnvtest(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	dir := programs(t, "--setup-envtest", "--bin-dir", bin)
	if parent := filepath.Dir(dir); parent != filepath.Join(bin, "k8s") {
		t.Errorf("the folder is %s", dir)
	}
	run := func(path string) (string, error) {
		cmd := exec.Command(filepath.Join(dir, "kubectl"), "version", "--client")
		cmd.Env = []string{"PATH=" + path, "HOME=" + t.TempDir()}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(dir); err == nil || !strings.Contains(out, "there is none in $PATH") {
		t.Errorf("kubectl without kubectl: %v: %s", err, out)
	}
	if out, err := run(dir + ":" + filepath.Dir(harness.KubectlPath(t))); err != nil || !strings.Contains(out, "Client Version") {
		t.Errorf("kubectl: %v: %s", err, out)
	}
}

// TestOrphans: the programs of a suite that is killed stop.
func TestOrphans(t *testing.T) {
	t.Parallel()
	dir := programs(t, "--bin-dir", t.TempDir())
	suite := exec.Command("sh", "-c", `"$0/etcd" --listen-client-urls http://127.0.0.1:0 & "$0/kube-apiserver" --secure-port 0 & echo; wait`, dir)
	reader, writer, err := os.Pipe()
	must(t, err)
	suite.Stdout, suite.Stderr = writer, os.Stderr
	must(t, suite.Start())
	must(t, writer.Close())
	_, err = reader.Read(make([]byte, 1)) // both have started
	must(t, err)
	must(t, suite.Process.Kill())
	// The pipe ends when no process has it.
	_, err = io.ReadAll(reader)
	must(t, err)
	_ = suite.Wait()
}

// TestEphemeral: a server of a process that is killed stops, and its data is gone.
func TestEphemeral(t *testing.T) {
	t.Parallel()
	parent := exec.Command("sh", "-c", `"$0" serve --ephemeral --output json & wait`, exeunt(t))
	parent.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := parent.StdoutPipe()
	must(t, err)
	must(t, parent.Start())
	defer func() { _ = parent.Process.Kill() }()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	must(t, err)
	var started struct{ Kubeconfig string }
	must(t, json.Unmarshal(line, &started))
	config, err := clientcmd.BuildConfigFromFlags("", started.Kubeconfig)
	must(t, err)
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Get(context.Background(), "default", metav1.GetOptions{})
	must(t, err)
	must(t, parent.Process.Kill())
	harness.Until(t, "the data to be removed", func() error {
		if _, err := os.Stat(filepath.Dir(started.Kubeconfig)); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("it exists: %w", err)
		}
		return nil
	})
}
