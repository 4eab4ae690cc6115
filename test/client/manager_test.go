package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/exeunt/exeunt/test/harness"
)

// garage is an operator of Cars, written as a user of controller-runtime writes one: it
// reconciles v2, sets defaults, and validates.
type garage struct{ client.Client }

// Reconcile labels each car.
func (g *garage) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var c CarV2
	if err := g.Get(ctx, request.NamespacedName, &c); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if c.Labels["parked"] == "yes" {
		return ctrl.Result{}, nil
	}
	patch := client.MergeFrom(deepCopy(&c))
	metav1.SetMetaDataLabel(&c.ObjectMeta, "parked", "yes")
	return ctrl.Result{}, g.Patch(ctx, &c, patch)
}

// Default fills the last name.
func (g *garage) Default(_ context.Context, c *CarV2) error {
	if c.Spec.Last == "" {
		c.Spec.Last = "Unknown"
	}
	return nil
}

// ValidateCreate refuses one owner, and warns about another.
func (g *garage) ValidateCreate(_ context.Context, c *CarV2) (admission.Warnings, error) {
	if c.Spec.First == "Mallory" {
		return nil, errors.New("Mallory may not own a car")
	}
	if c.Spec.Last == "Unknown" {
		return admission.Warnings{"the owner of " + c.Name + " has no last name"}, nil
	}
	return nil, nil
}

// ValidateUpdate refuses another first name.
func (g *garage) ValidateUpdate(_ context.Context, old, c *CarV2) (admission.Warnings, error) {
	if old.Spec.First != c.Spec.First {
		return nil, errors.New("the first name may not change")
	}
	return nil, nil
}

// ValidateDelete refuses cars with a lock.
func (g *garage) ValidateDelete(_ context.Context, c *CarV2) (admission.Warnings, error) {
	if c.Labels["locked"] == "yes" {
		return nil, errors.New("the car is locked")
	}
	return nil, nil
}

// startGarage runs a manager whose webhooks are reached by the Service "convert".
func startGarage(t *testing.T, s *harness.Server) {
	t.Helper()
	certificate, bundle := serviceCertificate(t, "convert")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	address := free.Addr().String()
	check(t, free.Close())
	_, portText, err := net.SplitHostPort(address)
	check(t, err)
	port, err := strconv.Atoi(portText)
	check(t, err)
	serveAt(t, s, address)
	applyCRD(t, s, carCRDs(bundle))
	manager, err := ctrl.NewManager(s.Config(), ctrl.Options{
		Scheme: carScheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: "127.0.0.1", Port: port,
			TLSOpts: []func(*tls.Config){func(c *tls.Config) {
				c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
			}},
		}),
	})
	check(t, err)
	g := &garage{Client: manager.GetClient()}
	check(t, ctrl.NewControllerManagedBy(manager).For(&CarV2{}).Complete(g))
	check(t, ctrl.NewWebhookManagedBy(manager, &CarV2{}).WithDefaulter(g).WithValidator(g).Complete())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the manager ended: %v", err)
		}
	})
	configureGarage(t, s, bundle)
}

// configureGarage registers both webhooks for v2 alone: a write in v1 reaches them converted.
func configureGarage(t *testing.T, s *harness.Server, bundle []byte) {
	t.Helper()
	rules := func(operations ...admissionv1.OperationType) []admissionv1.RuleWithOperations {
		return []admissionv1.RuleWithOperations{{Operations: operations, Rule: admissionv1.Rule{
			APIGroups: []string{"cars.exeunt.dev"}, APIVersions: []string{"v2"}, Resources: []string{"cars"},
		}}}
	}
	at := func(path string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{CABundle: bundle, Service: &admissionv1.ServiceReference{Namespace: "default", Name: "convert", Path: &path}}
	}
	api, ctx := typed(t, s.Config()).AdmissionregistrationV1(), t.Context()
	_, err := api.MutatingWebhookConfigurations().Create(ctx, &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "garage"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "default.cars.exeunt.dev", ClientConfig: at("/mutate-cars-exeunt-dev-v2-car"), Rules: rules(admissionv1.Create, admissionv1.Update),
			SideEffects: ptr(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	check(t, err)
	configuration := validatingHook(at("/validate-cars-exeunt-dev-v2-car"), rules(admissionv1.OperationAll))
	_, err = api.ValidatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{})
	check(t, err)
}

// warnings keeps the warnings that a client gets.
type warnings struct {
	mu    sync.Mutex
	texts []string // guarded by mu
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.texts, text)
}

// TestManagerWithWebhooks runs one manager that reconciles, sets defaults, validates and
// converts. Clients write the old version, and every webhook gets the new one.
func TestManagerWithWebhooks(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	s := harness.Start(t, harness.SQLite)
	startGarage(t, s)
	warned, config, ctx := &warnings{}, s.Config(), t.Context()
	config.WarningHandler = warned
	c, err := client.New(config, client.Options{Scheme: carScheme()})
	check(t, err)
	harness.Until(t, "the webhooks refuse", func() error {
		probe := &CarV1{ObjectMeta: car("probe")}
		probe.Spec.Owner = "Mallory"
		if err := c.Create(ctx, probe, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "Mallory may not own a car") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	ada := &CarV1{ObjectMeta: car("ada")}
	ada.Spec.Owner = "Ada"
	check(t, c.Create(ctx, ada))
	if ada.Spec.Owner != "Ada Unknown" {
		t.Errorf("owner %q, want the default of the webhook", ada.Spec.Owner)
	}
	if text := "the owner of ada has no last name"; !warned.has(text) {
		t.Errorf("warnings %q, want %q", warned.texts, text)
	}
	harness.Until(t, "the reconciler labels the car", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(ada), ada); err != nil || ada.Labels["parked"] != "yes" {
			return fmt.Errorf("labels %v: %v", ada.Labels, err)
		}
		return nil
	})
	renamed := deepCopy(ada)
	renamed.Spec.Owner = "Augusta Unknown"
	if err := c.Update(ctx, renamed); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the first name may not change") {
		t.Errorf("update: %v", err)
	}
	merge := func(patch string) {
		check(t, c.Patch(ctx, ada, client.RawPatch("application/merge-patch+json", []byte(patch))))
	}
	merge(`{"metadata":{"labels":{"locked":"yes"}}}`)
	if err := c.Delete(ctx, ada); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the car is locked") {
		t.Errorf("delete: %v", err)
	}
	merge(`{"metadata":{"labels":{"locked":null}}}`)
	check(t, c.Delete(ctx, ada))
	if err := c.Get(ctx, client.ObjectKeyFromObject(ada), &CarV2{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the delete: %v", err)
	}
}
