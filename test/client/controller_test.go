package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/exeunt/exeunt/test/harness"
)

// Greeting is a custom kind: the operator copies its text to a ConfigMap of the same name.
type Greeting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GreetingSpec   `json:"spec,omitempty"`
	Status            GreetingStatus `json:"status,omitempty"`
}

// GreetingSpec is what the user wants.
type GreetingSpec struct {
	Text string `json:"text,omitempty"`
}

// GreetingStatus is the observed state.
type GreetingStatus struct {
	Said               string `json:"said,omitempty"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
}

// GreetingList is a list of Greetings.
type GreetingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Greeting `json:"items"`
}

// DeepCopyObject makes Greeting a runtime.Object.
func (g *Greeting) DeepCopyObject() runtime.Object { return deepCopy(g) }

// DeepCopyObject makes GreetingList a runtime.Object.
func (l *GreetingList) DeepCopyObject() runtime.Object { return deepCopy(l) }

// deepCopy copies through JSON: slow, but enough for a test.
func deepCopy[T any](from *T) *T {
	data, err := json.Marshal(from)
	if err != nil {
		panic(err)
	}
	to := new(T)
	if err := json.Unmarshal(data, to); err != nil {
		panic(err)
	}
	return to
}

const greetingCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: greetings.test.exeunt.dev}
spec:
  group: test.exeunt.dev
  scope: Namespaced
  names: {plural: greetings, singular: greeting, kind: Greeting}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {text: {type: string, default: hello}}}
          status: {type: object, properties: {said: {type: string}, observedGeneration: {type: integer, format: int64}}}
`

const farewell = "test.exeunt.dev/farewell"

// greeter is the operator under test, written as a user of controller-runtime writes one.
type greeter struct {
	client.Client
	farewells chan string // names of Greetings whose finalizer ran
}

// Reconcile brings a Greeting's ConfigMap and status in line.
func (g *greeter) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var greeting Greeting
	if err := g.Get(ctx, request.NamespacedName, &greeting); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !greeting.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(&greeting, farewell) {
			if err := g.Update(ctx, &greeting); err != nil {
				return ctrl.Result{}, err
			}
			g.farewells <- greeting.Name
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&greeting, farewell) {
		return ctrl.Result{}, g.Update(ctx, &greeting)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: greeting.Name, Namespace: greeting.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, g.Client, cm, func() error {
		cm.Data = map[string]string{"text": greeting.Spec.Text}
		return controllerutil.SetControllerReference(&greeting, cm, g.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if greeting.Status.Said != greeting.Spec.Text || greeting.Status.ObservedGeneration != greeting.Generation {
		greeting.Status = GreetingStatus{Said: greeting.Spec.Text, ObservedGeneration: greeting.Generation}
		return ctrl.Result{}, g.Status().Update(ctx, &greeting)
	}
	return ctrl.Result{}, nil
}

// TestControllerRuntime runs an operator: a manager with a cached client, a
// kind of its own, an owned ConfigMap, a finalizer.
func TestControllerRuntime(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		if r := s.KubectlCommand(t, harness.Command{Args: []string{"apply", "-f", "-"}, Stdin: greetingCRD}); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		if r := s.Kubectl(t, "wait", "crd/greetings.test.exeunt.dev", "--for=condition=Established", "--timeout=30s"); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		c, farewells := runGreeter(t, s)
		ctx, key := t.Context(), client.ObjectKey{Namespace: "default", Name: "g"}
		greeting := &Greeting{ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: "default"}}
		check(t, c.Create(ctx, greeting))
		says := func(text string) {
			t.Helper()
			harness.Until(t, "the greeting "+text, func() error {
				var cm corev1.ConfigMap
				if err := c.Get(ctx, key, &cm); err != nil {
					return err
				}
				if err := c.Get(ctx, key, greeting); err != nil {
					return err
				}
				if cm.Data["text"] != text || greeting.Status.Said != text || len(cm.OwnerReferences) != 1 {
					return fmt.Errorf("ConfigMap says %q, status %q", cm.Data["text"], greeting.Status.Said)
				}
				return nil
			})
		}
		says("hello")
		check(t, c.Patch(ctx, greeting, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"text":"good day"}}`))))
		says("good day")
		check(t, c.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: "default"}}))
		says("good day")
		s.Restart()
		harness.Until(t, "a write after the restart", func() error {
			return c.Patch(ctx, greeting, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"text":"hello again"}}`)))
		})
		says("hello again")
		check(t, c.Delete(ctx, greeting))
		if name := next(t, farewells); name != "g" {
			t.Fatalf("farewell to %s, want g", name)
		}
		harness.Until(t, "the greeting to go", func() error {
			if err := c.Get(ctx, key, greeting); !apierrors.IsNotFound(err) {
				return fmt.Errorf("still there: %v", err)
			}
			return nil
		})
	})
}

// runGreeter starts a manager with the operator and returns a client of its
// own, without cache, for the test.
func runGreeter(t *testing.T, s *harness.Server) (client.Client, <-chan string) {
	t.Helper()
	scheme := runtime.NewScheme()
	check(t, clientgoscheme.AddToScheme(scheme))
	gv := schema.GroupVersion{Group: "test.exeunt.dev", Version: "v1"}
	scheme.AddKnownTypes(gv, &Greeting{}, &GreetingList{})
	metav1.AddToGroupVersion(scheme, gv)
	again := true // both engines run a controller of the same name
	manager, err := ctrl.NewManager(s.Config(), ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again},
	})
	check(t, err)
	g := &greeter{Client: manager.GetClient(), farewells: make(chan string, 10)}
	check(t, ctrl.NewControllerManagedBy(manager).For(&Greeting{}).Owns(&corev1.ConfigMap{}).Complete(g))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the manager ended: %v", err)
		}
	})
	c, err := client.New(s.Config(), client.Options{Scheme: scheme})
	check(t, err)
	return c, g.farewells
}
