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
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
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
func start(t *testing.T, assets string, flags ...string) (*envtest.Environment, kubernetes.Interface, *bytes.Buffer) {
	t.Helper()
	printed := &bytes.Buffer{}
	env := &envtest.Environment{BinaryAssetsDirectory: assets}
	env.ControlPlane.GetAPIServer().Err = printed
	env.ControlPlane.GetAPIServer().CertDir = t.TempDir() // a restart keeps the certificates
	env.ControlPlane.GetAPIServer().Configure().Append("feature-gates", "Any=true").Append("enable-admission-plugins", "Any")
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		env.ControlPlane.GetAPIServer().Configure().Append(name, value)
	}
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
	seesMarks(t, c)

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
	if text := printed.String(); strings.Count(text, "ignores") != 2 || !strings.Contains(text, "ignores --enable-admission-plugins --feature-gates\n") {
		t.Errorf("each start names the ignored flags in one line: %s", text)
	}
}

// seesMarks: a watch has the deletion time of a pod that no node runs before it has its removal. Controllers act on it.
func seesMarks(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	ctx, pods := t.Context(), c.CoreV1().Pods("default")
	for _, step := range []struct {
		remove func() error
		events []watch.EventType
	}{
		{func() error { return pods.Delete(ctx, "marked-0", metav1.DeleteOptions{}) }, []watch.EventType{watch.Modified, watch.Deleted}},
		{func() error {
			return pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "marked"})
		}, []watch.EventType{watch.Modified, watch.Modified, watch.Deleted, watch.Deleted}},
	} {
		var version string
		for i := range 2 {
			pod, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("marked-", i), Labels: map[string]string{"marked": ""}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				must(t, err)
				version = pod.ResourceVersion
			}
		}
		w, err := pods.Watch(ctx, metav1.ListOptions{LabelSelector: "marked", ResourceVersion: version})
		must(t, err)
		must(t, step.remove())
		for _, want := range step.events {
			e := <-w.ResultChan()
			if pod, ok := e.Object.(*corev1.Pod); !ok || e.Type != want || pod.DeletionTimestamp == nil || *pod.DeletionGracePeriodSeconds != 0 {
				t.Errorf("want %s with the deletion time, not %s %v", want, e.Type, e.Object)
			}
		}
		w.Stop()
	}
}

// TestSigningKey: tokens of ServiceAccounts are signed with envtest's key, for its issuer, and those of each
// further --service-account-key-file are accepted.
func TestSigningKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "old.key")
	_, _, err := keyutil.LoadOrGenerateKeyFile(file)
	must(t, err)
	env, c, _ := start(t, programs(t, "--bin-dir", t.TempDir()), "service-account-key-file="+file)
	_, err = c.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	must(t, err)
	token, err := c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	signed, err := jwt.ParseSigned(token.Status.Token)
	must(t, err)
	public, err := keyutil.PublicKeysFromFile(filepath.Join(env.ControlPlane.GetAPIServer().CertDir, "sa-signer.crt"))
	must(t, err)
	var claims struct {
		jwt.Claims
		Kubernetes any `json:"kubernetes.io"`
	}
	if err := signed.Claims(public[0], &claims); err != nil || claims.Subject != "system:serviceaccount:default:robot" {
		t.Errorf("the token is for %q: %v", claims.Subject, err)
	}
	expectName(t, env.Config, token.Status.Token, claims.Subject)

	key, err := keyutil.PrivateKeyFromFile(file)
	must(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	must(t, err)
	old, err := jwt.Signed(signer).Claims(claims).CompactSerialize()
	must(t, err)
	expectName(t, env.Config, old, claims.Subject)
}

// expectName asks the server who the holder of a token is.
func expectName(t *testing.T, config *rest.Config, token, want string) {
	t.Helper()
	as := rest.AnonymousClientConfig(config)
	as.BearerToken = token
	self, err := kubernetes.NewForConfigOrDie(as).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || self.Status.UserInfo.Username != want {
		t.Errorf("the token's holder is %q, want %q: %v", self.Status.UserInfo.Username, want, err)
	}
}

// TestControllers: with --controllers dependents and namespaces leave, and there are
// ServiceAccounts.
func TestControllers(t *testing.T) {
	t.Parallel()
	env, c, _ := start(t, programs(t, "--bin-dir", t.TempDir(), "--controllers"))
	ctx := t.Context()
	world(t, c)
	finishedJob(t, c)
	tokenSecret(t, env.Config, c)
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

// finishedJob waits until a Job has left because of its TTL.
func finishedJob(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	jobs, now, none, yes := c.BatchV1().Jobs("shop"), metav1.Now(), int32(0), true
	labels := map[string]string{"a": "b"}
	job, err := jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "done"}, Spec: batchv1.JobSpec{
		TTLSecondsAfterFinished: &none, ManualSelector: &yes, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}},
	}}, metav1.CreateOptions{})
	must(t, err)
	job.Status.StartTime, job.Status.CompletionTime = &now, &now
	for _, done := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: done, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	_, err = jobs.UpdateStatus(t.Context(), job, metav1.UpdateOptions{})
	must(t, err)
	harness.Until(t, "the finished Job to leave", func() error {
		_, err := jobs.Get(t.Context(), "done", metav1.GetOptions{})
		return gone(err)
	})
}

// tokenSecret waits until a Secret has a token for its ServiceAccount, which is good until the Secret is deleted.
func tokenSecret(t *testing.T, config *rest.Config, c kubernetes.Interface) {
	t.Helper()
	ctx, secrets := t.Context(), c.CoreV1().Secrets("shop")
	_, err := c.CoreV1().ServiceAccounts("shop").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}}, Type: corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	must(t, err)
	var token string
	harness.Until(t, "the Secret to have a token", func() error {
		secret, err := secrets.Get(ctx, "token", metav1.GetOptions{})
		if err != nil || len(secret.Data) < 3 {
			return fmt.Errorf("it has %d keys: %w", len(secret.Data), err)
		}
		token = string(secret.Data[corev1.ServiceAccountTokenKey])
		return nil
	})
	expectName(t, config, token, "system:serviceaccount:shop:robot")
	must(t, secrets.Delete(ctx, "token", metav1.DeleteOptions{}))
	as := rest.AnonymousClientConfig(config)
	as.BearerToken = token
	harness.Until(t, "the token to end", func() error {
		_, err := kubernetes.NewForConfigOrDie(as).Discovery().ServerGroups()
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
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
	if out, err := exec.Command(filepath.Join(dir, "kube-apiserver"), "--version").Output(); err != nil || !strings.HasPrefix(string(out), "Kubernetes v1.") {
		t.Errorf("kube-apiserver --version: %v: %s", err, out)
	}
	if out, err := run(dir); err == nil || !strings.Contains(out, "there is none in $PATH") {
		t.Errorf("kubectl without kubectl: %v: %s", err, out)
	}
	if out, err := run(dir + ":" + filepath.Dir(harness.KubectlPath(t))); err != nil || !strings.Contains(out, "Client Version") {
		t.Errorf("kubectl: %v: %s", err, out)
	}
}

// TestNoCollectionAtStart: a server collects no garbage until it serves.
func TestNoCollectionAtStart(t *testing.T) {
	t.Parallel()
	server := exec.Command(exeunt(t), "serve", "--ephemeral", "--registry-listen", "", "--log-level", "WARN", "--output", "json")
	server.Env = append(os.Environ(), "GODEBUG=gctrace=1", "GOGC=") // an empty one is none
	out, err := server.StdoutPipe()
	must(t, err)
	traced := &bytes.Buffer{}
	server.Stderr = traced
	must(t, server.Start())
	_, err = bufio.NewReader(out).ReadBytes('\n')
	must(t, err)
	must(t, server.Process.Kill())
	_ = server.Wait() // it was killed
	for line := range strings.Lines(traced.String()) {
		if strings.HasPrefix(line, "gc ") && !strings.Contains(line, "(forced)") { // a second later one is forced
			t.Errorf("a collection at the start: %s", line)
		}
	}
}

// TestOrphans: the programs of a suite that is killed stop.
func TestOrphans(t *testing.T) {
	t.Parallel()
	dir := programs(t, "--bin-dir", t.TempDir())
	ports := make([]string, 2)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		_, ports[i], err = net.SplitHostPort(l.Addr().String())
		must(t, errors.Join(err, l.Close()))
	}
	suite := exec.Command("sh", "-c", `"$0/etcd" --listen-client-urls http://127.0.0.1:$1 & "$0/kube-apiserver" --secure-port $2 & wait`, dir, ports[0], ports[1])
	reader, writer, err := os.Pipe()
	must(t, err)
	suite.Stdout, suite.Stderr = writer, os.Stderr
	must(t, suite.Start())
	must(t, writer.Close())
	// Before they listen they may not know yet which process is their parent.
	for _, port := range ports {
		harness.Until(t, "both to listen", func() error {
			c, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err != nil {
				return err
			}
			return c.Close()
		})
	}
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
