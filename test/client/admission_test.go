package client_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/exeunt/exeunt/test/harness"
)

// hooks is a webhook server. /label adds a label; /refuse denies objects whose name has
// "forbidden" in it, and warns about the others; /down answers 500.
type hooks struct {
	*httptest.Server
	mu    sync.Mutex
	calls []admissionreview.AdmissionRequest // guarded by mu
}

func startHooks(t *testing.T) *hooks {
	h := &hooks{}
	mux := http.NewServeMux()
	mux.HandleFunc("/label", h.answer(func(r *admissionreview.AdmissionRequest, a *admissionreview.AdmissionResponse) {
		a.Allowed = true
		patchType := admissionreview.PatchTypeJSONPatch
		a.PatchType = &patchType
		a.Patch = []byte(`[{"op":"add","path":"/metadata/labels","value":{"seen":"yes"}}]`)
	}))
	mux.HandleFunc("/refuse", h.answer(func(r *admissionreview.AdmissionRequest, a *admissionreview.AdmissionResponse) {
		var old metav1.PartialObjectMetadata // a deletecollection names no object
		_ = json.Unmarshal(r.OldObject.Raw, &old)
		a.Allowed = !strings.Contains(r.Name+old.Name, "forbidden")
		a.Warnings = []string{"the webhook saw " + r.Name}
		if !a.Allowed {
			a.Result = &metav1.Status{Message: "this name is forbidden", Code: http.StatusForbidden}
		}
	}))
	mux.HandleFunc("/down", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	h.Server = httptest.NewTLSServer(mux)
	t.Cleanup(h.Close)
	return h
}

func (h *hooks) answer(decide func(*admissionreview.AdmissionRequest, *admissionreview.AdmissionResponse)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var review admissionreview.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		h.calls = append(h.calls, *review.Request)
		h.mu.Unlock()
		review.Response = &admissionreview.AdmissionResponse{UID: review.Request.UID}
		decide(review.Request, review.Response)
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}
}

// called returns how often an operation on a name reached the webhooks.
func (h *hooks) called(operation admissionreview.Operation, name string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c.Operation == operation && c.Name == name {
			n++
		}
	}
	return n
}

// client returns how the server reaches a path of the webhooks.
func (h *hooks) client(path string) admissionv1.WebhookClientConfig {
	url := h.URL + path
	return admissionv1.WebhookClientConfig{URL: &url, CABundle: h.bundle()}
}

func (h *hooks) bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
}

func rule(resource string, operations ...admissionv1.OperationType) []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: operations,
		Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{resource}},
	}}
}

func ptr[T any](v T) *T { return &v }

func validatingHook(client admissionv1.WebhookClientConfig, rules []admissionv1.RuleWithOperations) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "refuse.example.com", ClientConfig: client, Rules: rules,
			SideEffects: ptr(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// TestWebhooks configures webhooks, and expects that they change, refuse and warn: JSON
// and protobuf, create, update, patch, delete and deletecollection.
func TestWebhooks(t *testing.T) {
	s := harness.Start(t, "sqlite")
	h := startHooks(t)
	client := typed(t, s.Config())
	ctx := t.Context()
	mutating := &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "label"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "label.example.com", ClientConfig: h.client("/label"), Rules: rule("configmaps", admissionv1.Create),
			SideEffects: ptr(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	_, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, mutating, metav1.CreateOptions{})
	check(t, err)
	maps := client.CoreV1().ConfigMaps("default")
	probe := 0
	harness.Until(t, "the webhook changes new objects", func() error {
		probe++
		made, err := maps.Create(ctx, configMap("probe-"+strconv.Itoa(probe), nil), metav1.CreateOptions{})
		if err == nil && made.Labels["seen"] != "yes" {
			err = fmt.Errorf("labels %v", made.Labels)
		}
		return err
	})
	protobuf := s.Config()
	protobuf.ContentType = runtime.ContentTypeProtobuf
	made, err := typed(t, protobuf).CoreV1().ConfigMaps("default").Create(ctx, configMap("binary", nil), metav1.CreateOptions{})
	check(t, err)
	if made.Labels["seen"] != "yes" {
		t.Errorf("a protobuf create passed the webhook: labels %v", made.Labels)
	}

	for _, name := range []string{"forbidden-update", "forbidden-delete", "fine"} {
		_, err := maps.Create(ctx, configMap(name, nil), metav1.CreateOptions{})
		check(t, err)
	}
	_, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx,
		validatingHook(h.client("/refuse"), rule("configmaps", admissionv1.OperationAll)), metav1.CreateOptions{})
	check(t, err)
	harness.Until(t, "the webhook refuses", func() error {
		_, err := maps.Create(ctx, configMap("forbidden-probe", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !refused(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	_, err = maps.Update(ctx, configMap("forbidden-update", map[string]string{"a": "b"}), metav1.UpdateOptions{})
	wantRefused(t, "update", err)
	_, err = maps.Patch(ctx, "forbidden-update", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
	wantRefused(t, "patch", err)
	wantRefused(t, "delete", maps.Delete(ctx, "forbidden-delete", metav1.DeleteOptions{}))
	if _, err := maps.Get(ctx, "forbidden-delete", metav1.GetOptions{}); err != nil {
		t.Errorf("the refused delete took the object: %v", err)
	}
	wantRefused(t, "deletecollection", maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=forbidden-delete"}))
	check(t, maps.Delete(ctx, "fine", metav1.DeleteOptions{}))
	if h.called(admissionreview.Delete, "fine") != 1 {
		t.Errorf("the webhook was asked %d times about a delete", h.called(admissionreview.Delete, "fine"))
	}
	testFailurePolicy(t, client, h)
}

// testFailurePolicy breaks the webhook: Fail refuses, Ignore lets pass.
func testFailurePolicy(t *testing.T, client kubernetes.Interface, h *hooks) {
	ctx := t.Context()
	configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	maps := client.CoreV1().ConfigMaps("default")
	for _, policy := range []admissionv1.FailurePolicyType{admissionv1.Fail, admissionv1.Ignore} {
		c, err := configurations.Get(ctx, "refuse", metav1.GetOptions{})
		check(t, err)
		c.Webhooks[0].ClientConfig, c.Webhooks[0].FailurePolicy = h.client("/down"), ptr(policy)
		_, err = configurations.Update(ctx, c, metav1.UpdateOptions{})
		check(t, err)
		harness.Until(t, "failure policy "+string(policy), func() error {
			_, err := maps.Create(ctx, configMap("any", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			failed := apierrors.IsInternalError(err) && strings.Contains(err.Error(), "refuse.example.com")
			if failed != (policy == admissionv1.Fail) || !failed && err != nil {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	}
}

func refused(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "this name is forbidden")
}

func wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	if !refused(err) {
		t.Errorf("%s: got %v, want the webhook's refusal", what, err)
	}
}

// TestWebhookByService reaches a webhook through a Service and its EndpointSlice, for a
// subresource.
func TestWebhookByService(t *testing.T) {
	s := harness.Start(t, "sqlite")
	h := startHooks(t)
	client := typed(t, s.Config())
	ctx := t.Context()
	host, portText, err := net.SplitHostPort(strings.TrimPrefix(h.URL, "https://"))
	check(t, err)
	port, err := strconv.Atoi(portText)
	check(t, err)
	_, err = client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	}, metav1.CreateOptions{})
	check(t, err)
	_, err = client.DiscoveryV1().EndpointSlices("default").Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "hook-1", Labels: map[string]string{discoveryv1.LabelServiceName: "hook"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{host}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr(""), Port: ptr(int32(port))}},
	}, metav1.CreateOptions{})
	check(t, err)
	// The certificate of httptest names example.com, and a Service's name is
	// hook.default.svc: the connection must fail by that name, which shows where it went.
	service := admissionv1.WebhookClientConfig{
		Service:  &admissionv1.ServiceReference{Namespace: "default", Name: "hook", Path: ptr("/refuse")},
		CABundle: h.bundle(),
	}
	_, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx,
		validatingHook(service, rule("deployments/scale", admissionv1.Update)), metav1.CreateOptions{})
	check(t, err)
	deployments := client.AppsV1().Deployments("default")
	_, err = deployments.Create(ctx, deployment("web"), metav1.CreateOptions{})
	check(t, err)
	harness.Until(t, "the scale reaches the webhook by its service", func() error {
		scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		scale.Spec.Replicas++
		_, err = deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
		if err == nil || !strings.Contains(err.Error(), "hook.default.svc") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

// TestPolicies configures policies in CEL, one that refuses by a parameter and one that
// changes objects.
func TestPolicies(t *testing.T) {
	s := harness.Start(t, "sqlite")
	client := typed(t, s.Config())
	testCompletedPods(t, s)
	ctx := t.Context()
	match := &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule("configmaps", admissionv1.Create)[0]}}}
	_, err := client.CoreV1().ConfigMaps("kube-system").Create(ctx, configMap("limit", map[string]string{"prefix": "ok-"}), metav1.CreateOptions{})
	check(t, err)
	api := client.AdmissionregistrationV1()
	_, err = api.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "prefix"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			ParamKind: &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}, MatchConstraints: match,
			Validations: []admissionv1.Validation{{Expression: "object.metadata.name.startsWith(params.data.prefix)", Message: "the name needs the prefix"}},
		},
	}, metav1.CreateOptions{})
	check(t, err)
	_, err = api.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prefix"},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "prefix", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			ParamRef: &admissionv1.ParamRef{Name: "limit", Namespace: "kube-system", ParameterNotFoundAction: ptr(admissionv1.DenyAction)},
		},
	}, metav1.CreateOptions{})
	check(t, err)
	_, err = api.MutatingAdmissionPolicies().Create(ctx, &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "mark"},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: match, ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{
				PatchType:          admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"marked": "yes"}}}`},
			}},
		},
	}, metav1.CreateOptions{})
	check(t, err)
	_, err = api.MutatingAdmissionPolicyBindings().Create(ctx, &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "mark"}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "mark"},
	}, metav1.CreateOptions{})
	check(t, err)
	maps := client.CoreV1().ConfigMaps("default")
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	harness.Until(t, "both policies are in force", func() error {
		if _, err := maps.Create(ctx, configMap("wrong", nil), dry); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "the name needs the prefix") {
			return fmt.Errorf("the validating policy: %v", err)
		}
		made, err := maps.Create(ctx, configMap("ok-1", nil), dry)
		if err != nil || made.Labels["marked"] != "yes" {
			return fmt.Errorf("the mutating policy: %v, %v", made.Labels, err)
		}
		return nil
	})
	_, err = api.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "broken"},
		Spec:       admissionv1.ValidatingAdmissionPolicySpec{MatchConstraints: match, Validations: []admissionv1.Validation{{Expression: "object.("}}},
	}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a policy that does not compile: got %v", err)
	}
}
