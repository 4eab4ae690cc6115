package client_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/test/harness"
)

// TestDryRunAsksWebhooks: webhooks judge what a restore creates, in a namespace that it
// creates first too, and the dry run says the same as the run: what they allow, and what
// they refuse.
func TestDryRunAsksWebhooks(t *testing.T) {
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			s := harness.Start(t, engine)
			h := startHooks(t)
			client := typed(t, s.Config())
			ctx := t.Context()
			namespaces, maps := client.CoreV1().Namespaces(), client.CoreV1().ConfigMaps("shop")
			_, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"judged": "yes"}}}, metav1.CreateOptions{})
			check(t, err)
			for _, name := range []string{"allowed", "forbidden-ware"} {
				_, err = maps.Create(ctx, configMap(name, nil), metav1.CreateOptions{})
				check(t, err)
			}
			check(t, namespaces.Delete(ctx, "shop", metav1.DeleteOptions{}))
			harness.Until(t, "the namespace is gone", func() error {
				if _, err := namespaces.Get(ctx, "shop", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return fmt.Errorf("got %v", err)
				}
				return nil
			})
			hook := validatingHook(h.client("/refuse"), rule("configmaps", admissionv1.Create))
			hook.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"judged": "yes"}}
			_, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, hook, metav1.CreateOptions{})
			check(t, err)
			_, err = namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"judged": "yes"}}}, metav1.CreateOptions{})
			check(t, err)
			harness.Until(t, "the webhook refuses", func() error {
				if _, err := client.CoreV1().ConfigMaps("other").Create(ctx, configMap("forbidden-x", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !refused(err) {
					return fmt.Errorf("got %v", err)
				}
				return nil
			})
			results := func(args ...string) (out []string) {
				t.Helper()
				r := s.Exeunt(t, append([]string{"restore", "namespace/shop", "--with-cascade", "-o", "json"}, args...)...)
				var restore struct {
					Status struct {
						Results []struct{ Kind, Name, Outcome, Reason string }
					}
				}
				if err := json.Unmarshal([]byte(r.Stdout), &restore); err != nil {
					t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
				}
				for _, result := range restore.Status.Results {
					out = append(out, fmt.Sprint(result))
				}
				return out
			}
			dry := results("--dry-run")
			run := results()
			if diff := cmp.Diff(dry, run); diff != "" {
				t.Errorf("the dry run (-) differs from the run (+):\n%s", diff)
			}
			if _, err := maps.Get(ctx, "allowed", metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
			if _, err := maps.Get(ctx, "forbidden-ware", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the webhook did not refuse: %v", err)
			}
		})
	}
}

// TestRestoreCode: a restore that brings nothing back because the names are taken fails, and its dry run fails as well. What is
// there already, as it was, is no failure.
func TestRestoreCode(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	maps := typed(t, s.Config()).CoreV1().ConfigMaps("default")
	for _, name := range []string{"back", "taken"} {
		_, err := maps.Create(t.Context(), configMap(name, nil), metav1.CreateOptions{})
		check(t, err)
		check(t, maps.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	_, err := maps.Create(t.Context(), configMap("taken", nil), metav1.CreateOptions{})
	check(t, err)
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"configmap/taken", "--dry-run"}, 1},
		{[]string{"configmap/taken"}, 1},
		{[]string{"configmap/back", "configmap/taken", "--dry-run"}, 1},
		{[]string{"configmap/back", "--dry-run"}, 0},
		{[]string{"configmap/back"}, 0},
		{[]string{"configmap/back"}, 0},
	} {
		if r := s.Exeunt(t, append([]string{"restore", "-n", "default"}, c.args...)...); r.Code != c.want {
			t.Errorf("restore %v: exit code %d, want %d: %s%s", c.args, r.Code, c.want, r.Stdout, r.Stderr)
		}
	}
}
