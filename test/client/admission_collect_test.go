package client_test

import (
	"fmt"
	"strings"
	"testing"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/test/harness"
)

// TestWebhookJudgesTheCollector: a webhook refuses what the collector, a terminating
// namespace and a restore do. Other kinds go on, "exeunt why" names the webhook, and
// without it everything goes.
func TestWebhookJudgesTheCollector(t *testing.T) {
	s := harness.Start(t, "sqlite")
	h := startHooks(t)
	client := typed(t, s.Config())
	ctx := t.Context()
	hooks := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	check(t, err)
	maps, secrets := client.CoreV1().ConfigMaps("default"), client.CoreV1().Secrets("default")
	root, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "root"}}, metav1.CreateOptions{})
	check(t, err)
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: root.Name, UID: root.UID}}
	child := configMap("forbidden-child", nil)
	child.OwnerReferences = owner
	_, err = maps.Create(ctx, child, metav1.CreateOptions{})
	check(t, err)
	_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other", OwnerReferences: owner}}, metav1.CreateOptions{})
	check(t, err)
	_, err = client.CoreV1().ConfigMaps("shop").Create(ctx, configMap("forbidden-ware", nil), metav1.CreateOptions{})
	check(t, err)

	_, err = hooks.Create(ctx, validatingHook(h.client("/refuse"), rule("configmaps", admissionv1.Delete)), metav1.CreateOptions{})
	check(t, err)
	harness.Until(t, "the webhook refuses deletes", func() error {
		if err := maps.Delete(ctx, "forbidden-child", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); !refused(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	check(t, secrets.Delete(ctx, "root", metav1.DeleteOptions{}))
	check(t, client.CoreV1().Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{}))
	harness.Until(t, "the dependent of another kind is collected", func() error {
		if _, err := secrets.Get(ctx, "other", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	for _, args := range [][]string{{"why", "configmap/forbidden-child"}, {"why", "configmap/forbidden-ware", "-n", "shop"}, {"why", "namespace/shop"}} {
		harness.Until(t, strings.Join(args, " ")+" names the webhook", func() error {
			out := s.Exeunt(t, args...).Stdout
			for _, want := range []string{`admission webhook "refuse.example.com" denied the request: this name is forbidden`, "next in"} {
				if !strings.Contains(out, want) {
					return fmt.Errorf("no %q in:\n%s", want, out)
				}
			}
			if strings.Contains(out, "no client has asked for its deletion") {
				t.Errorf("%v:\n%s", args, out)
			}
			return nil
		})
	}
	wantClient(t, h, "forbidden-child", "system:serviceaccount:kube-system:generic-garbage-collector")
	wantClient(t, h, "forbidden-ware", "system:serviceaccount:kube-system:namespace-controller")

	check(t, hooks.Delete(ctx, "refuse", metav1.DeleteOptions{}))
	harness.Until(t, "everything goes without the webhook", func() error {
		if _, err := maps.Get(ctx, "forbidden-child", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the dependent: %v", err)
		}
		if _, err := client.CoreV1().Namespaces().Get(ctx, "shop", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the namespace: %v", err)
		}
		return nil
	})

	_, err = hooks.Create(ctx, validatingHook(h.client("/refuse"), rule("configmaps", admissionv1.Create)), metav1.CreateOptions{})
	check(t, err)
	harness.Until(t, "a restore is refused", func() error {
		out := s.Exeunt(t, "restore", "--dry-run", "configmap/forbidden-child")
		if text := out.Stdout + out.Stderr; !strings.Contains(text, "this name is forbidden") {
			return fmt.Errorf("got %s", text)
		}
		return nil
	})
	h.mu.Lock()
	for _, c := range h.calls {
		if c.Operation == admissionreview.Create && (c.DryRun == nil || !*c.DryRun) {
			t.Errorf("the dry run asks about %s as if it were none", c.Name)
		}
	}
	h.mu.Unlock()
	s.Exeunt(t, "restore", "configmap/forbidden-child")
	if _, err := maps.Get(ctx, "forbidden-child", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the refused restore made the object: %v", err)
	}
	if h.called(admissionreview.Create, "forbidden-child") == 0 {
		t.Error("the webhook did not see the restore")
	}
}

// wantClient checks in whose name the webhook was asked about a delete.
func wantClient(t *testing.T, h *hooks, name, want string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c.Name == name && c.Operation == admissionreview.Delete && c.UserInfo.Username == want {
			return
		}
	}
	t.Errorf("no delete of %s by %s among %d calls", name, want, len(h.calls))
}
