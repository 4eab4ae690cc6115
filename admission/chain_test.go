package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserver "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/admission"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// warnings are those of all answers since take.
type warnings struct {
	mu   sync.Mutex
	text []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.text = nil }()
	return strings.Join(w.text, "|")
}

// serve is an API with a chain that follows it, and an administrator as its client.
func serve(t *testing.T, db *sqldb.DB) (*admission.Chain, kubernetes.Interface, *warnings) {
	t.Helper()
	st, kinds, log := storetest.Run(t, store.Options{DB: db}), kind.NewRegistry(builtin.Kinds()), slog.New(slog.DiscardHandler)
	var served *api.API
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { served.ServeHTTP(w, accesstest.Admin(req)) }))
	heard := &warnings{}
	config := &rest.Config{Host: "http://" + web.Listener.Addr().String(), QPS: -1, WarningHandler: heard}
	control := accesstest.Control()
	chain, err := admission.New(admission.Config{Client: config, Get: st.Get, Kinds: kinds, Authorizer: control.Authorizer()})
	if err != nil {
		t.Fatal(err)
	}
	if chain.Ready() == nil {
		t.Error("the chain is ready before it has read anything")
	}
	served = api.New(api.Config{Store: st, Kinds: kinds, Access: control, Admission: chain, Logger: log})
	web.Start()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- chain.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		served.Close(context.Background())
		web.CloseClientConnections()
		web.Close()
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Await(t, "the chain is ready", func() bool { return chain.Ready() == nil })
	return chain, client, heard
}

func podOf(change func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	change(&p.Spec)
	return p
}

// TestPods: PodSecurity by the labels of a namespace, LimitRanges and service accounts decide about pods, and about what
// makes pods.
func TestPods(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		chain, client, heard := serve(t, db)
		ctx, none := t.Context(), metav1.CreateOptions{}
		const label = "pod-security.kubernetes.io/"
		for name, labels := range map[string]map[string]string{
			"free": nil, "warned": {label + "warn": "baseline"}, "safe": {label + "enforce": "baseline"}, "small": nil,
		} {
			if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, none); err != nil {
				t.Fatal(err)
			}
		}
		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "odd", Labels: map[string]string{label + "enforce": "much"}}}, none)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `Invalid value: "much"`) {
			t.Errorf("a level that does not exist: %v", err)
		}
		bound := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"cpu": resource.MustParse("2")}, Default: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}}}
		if _, err := client.CoreV1().LimitRanges("small").Create(ctx, bound, none); err != nil {
			t.Fatal(err)
		}
		pods := corev1.Resource("pods")
		dbtest.Await(t, "the namespaces", func() bool {
			return chain.SelectsIn("small", pods, apiserver.Create) && !chain.SelectsIn("free", pods, apiserver.Create) && chain.SelectsIn("safe", pods, apiserver.Create)
		})
		plain := func(*corev1.PodSpec) {}
		hostile := func(p *corev1.PodSpec) { p.HostNetwork = true }
		for _, test := range []struct {
			namespace string
			change    func(*corev1.PodSpec)
			refusal   string // "" is allowed
			warning   string
		}{
			{"free", plain, "", ""},
			{"free", hostile, "", ""},
			{"free", func(p *corev1.PodSpec) { p.ServiceAccountName = "none" }, `serviceaccount "none" not found`, ""},
			{"warned", hostile, "", `would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`},
			{"warned", plain, "", ""},
			{"safe", plain, "", ""},
			{"safe", hostile, `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`, ""},
			{"safe", func(p *corev1.PodSpec) { p.ServiceAccountName = "none" }, `serviceaccount "none" not found`, ""},
			{"nowhere", plain, `namespaces "nowhere" not found`, ""},
			{"small", func(p *corev1.PodSpec) {
				p.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("3")}
			}, "maximum cpu usage per Container is 2, but limit is 3", ""},
			{"small", plain, "", ""},
		} {
			made, err := client.CoreV1().Pods(test.namespace).Create(ctx, podOf(test.change), none)
			said := heard.take()
			if (err == nil) != (test.refusal == "") || err != nil && !strings.Contains(err.Error(), test.refusal) || !strings.Contains(said, test.warning) || (said == "") != (test.warning == "") {
				t.Errorf("a pod in %s: %v, warned %q, want %q, %q", test.namespace, err, said, test.refusal, test.warning)
			}
			if err == nil && (made.Spec.Volumes == nil || made.Spec.ServiceAccountName != "default") {
				t.Errorf("a pod in %s has no account: %+v", test.namespace, made.Spec)
			}
			if given := made; err == nil && (given.Spec.Containers[0].Resources.Limits.Cpu().String() == "1") != (test.namespace == "small") {
				t.Errorf("a pod in %s has the limits %v", test.namespace, given.Spec.Containers[0].Resources.Limits)
			}
			if err != nil && test.namespace != "nowhere" && !apierrors.IsForbidden(err) {
				t.Errorf("a pod in %s: %v", test.namespace, err)
			}
		}
		usual := func(name string) error {
			_, err := client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, GlobalDefault: true}, none)
			return err
		}
		if err := usual("first"); err != nil {
			t.Fatal(err)
		}
		dbtest.Await(t, "the default class", func() bool {
			pod := podOf(plain)
			return chain.Complete(ctx, "free", pod) == nil && pod.Spec.PriorityClassName == "first"
		})
		if err := usual("second"); !apierrors.IsForbidden(err) {
			t.Errorf("a second default class: %v", err)
		}
		// What makes pods is warned about, and not refused; the pods will be.
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: podOf(hostile).Spec},
		}}
		if _, err := client.AppsV1().Deployments("warned").Create(ctx, d, none); err != nil || !strings.Contains(heard.take(), "would violate PodSecurity") {
			t.Errorf("a deployment of such pods: %v", err)
		}
	})
}

// TestConfigurations: a webhook or policy of each kind selects requests from its creation to its deletion. Policies refuse
// objects, by their parameters; and a namespace that a dry run would create exists for them while the dry run does.
func TestConfigurations(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.SQLite)
	chain, client, _ := serve(t, db)
	ctx, none, named := t.Context(), metav1.CreateOptions{}, metav1.ObjectMeta{Name: "x"}
	rules := func(resources string) []admissionv1.RuleWithOperations {
		return []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resources}},
		}}
	}
	match := func(resources string) *admissionv1.MatchResources {
		return &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rules(resources)[0]}}}
	}
	to, side, fail := "https://127.0.0.1:1", admissionv1.SideEffectClassNone, admissionv1.Fail
	hook := admissionv1.WebhookClientConfig{URL: &to}
	registration := client.AdmissionregistrationV1()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, none))
	must(client.CoreV1().ConfigMaps("n").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "limit"}, Data: map[string]string{"most": "3"}}, none))
	must(registration.MutatingWebhookConfigurations().Create(ctx, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: named, Webhooks: []admissionv1.MutatingWebhook{
		{Name: "a.example.com", ClientConfig: longWinded(t), Rules: rules("services"), SideEffects: &side, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"}}}}, none))
	must(registration.ValidatingWebhookConfigurations().Create(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: named, Webhooks: []admissionv1.ValidatingWebhook{
		{Name: "b.example.com", ClientConfig: hook, Rules: rules("limitranges"), SideEffects: &side, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"}}}}, none))
	must(registration.MutatingAdmissionPolicies().Create(ctx, &admissionv1.MutatingAdmissionPolicy{ObjectMeta: named, Spec: admissionv1.MutatingAdmissionPolicySpec{
		MatchConstraints: match("secrets"), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
			Expression: `[JSONPatch{op: "add", path: "/metadata/labels", value: {"seen": "yes"}}]`}}},
	}}, none))
	must(registration.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: match("secrets"), ParamKind: &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		Validations: []admissionv1.Validation{{Expression: `size(object.metadata.name) <= int(params.data.most)`, Message: "the name is too long"}},
	}}, none))
	deny := admissionv1.DenyAction
	must(registration.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "x", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}, ParamRef: &admissionv1.ParamRef{Name: "limit", Namespace: "n", ParameterNotFoundAction: &deny},
	}}, none))
	judges := func(want map[string]string) func() bool {
		return func() bool {
			for resource, names := range want {
				r := schema.GroupResource{Resource: resource}
				if strings.Join(chain.Judges(r, apiserver.Create), ", ") != names || chain.Selects(r, "", apiserver.Create) != (names != "") || chain.Judges(r, apiserver.Update) != nil {
					return false
				}
			}
			return true
		}
	}
	dbtest.Await(t, "all configurations", judges(map[string]string{
		"services": "MutatingWebhookConfiguration x (webhook a.example.com)", "limitranges": "ValidatingWebhookConfiguration x (webhook b.example.com)",
		"secrets": "MutatingAdmissionPolicy x, ValidatingAdmissionPolicy x", "configmaps": "",
	}))
	// The plugins of webhooks are made with the first configuration, and ask it from the first request on.
	_, changed := client.CoreV1().Services("n").Create(ctx, &corev1.Service{ObjectMeta: named, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}, none)
	_, checked := client.CoreV1().LimitRanges("n").Create(ctx, &corev1.LimitRange{ObjectMeta: named}, none)
	for hook, err := range map[string]error{"a.example.com": changed, "b.example.com": checked} {
		if err == nil || !strings.Contains(err.Error(), `failed calling webhook "`+hook) {
			t.Errorf("with the failing webhook %s: %v", hook, err)
		}
	}
	secret := func(name string) (*corev1.Secret, error) {
		return client.CoreV1().Secrets("n").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, none)
	}
	dbtest.Await(t, "a refusal", func() bool {
		_, err := secret("long")
		if err == nil {
			must(nil, client.CoreV1().Secrets("n").Delete(ctx, "long", metav1.DeleteOptions{}))
		}
		return err != nil && strings.Contains(err.Error(), "the name is too long")
	})

	ask := func(judge func(context.Context, apiserver.Attributes, apiserver.ObjectInterfaces) error, namespace, name string) error {
		obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		return judge(ctx, apiserver.NewAttributesRecord(obj, nil, corev1.SchemeGroupVersion.WithKind("Secret"), namespace, name, corev1.SchemeGroupVersion.WithResource("secrets"),
			"", apiserver.Create, &metav1.CreateOptions{}, true, &user.DefaultInfo{Name: "jane"}), objects)
	}
	if short, long := ask(chain.Judge, "n", "ok"), ask(chain.Judge, "n", "long"); short != nil || long == nil {
		t.Errorf("the policies say %v and %v", short, long)
	}
	if err := ask(chain.Judge, "later", "ok"); err == nil {
		t.Error("a policy judged in a namespace that does not exist")
	}
	pretending, end := context.WithCancel(ctx)
	for _, name := range []string{"later", "too"} {
		chain.Pretend(pretending, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if short, long := ask(chain.Judge, name, "ok"), ask(chain.Judge, name, "long"); short != nil || long == nil || !strings.Contains(long.Error(), "the name is too long") {
			t.Errorf("in a pretended namespace the policies say %v and %v", short, long)
		}
	}
	end()
	dbtest.Await(t, "the end of a dry run", func() bool { return ask(chain.Judge, "later", "ok") != nil })

	hooks, err := registration.ValidatingWebhookConfigurations().Get(ctx, "x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hooks.Webhooks[0].Rules = rules("events")
	must(registration.ValidatingWebhookConfigurations().Update(ctx, hooks, metav1.UpdateOptions{}))
	dbtest.Await(t, "other rules", judges(map[string]string{"limitranges": "", "events": "ValidatingWebhookConfiguration x (webhook b.example.com)"}))

	gone := metav1.DeleteOptions{}
	must(nil, registration.MutatingWebhookConfigurations().Delete(ctx, "x", gone))
	must(nil, registration.ValidatingWebhookConfigurations().Delete(ctx, "x", gone))
	must(nil, registration.MutatingAdmissionPolicies().Delete(ctx, "x", gone))
	must(nil, registration.ValidatingAdmissionPolicies().Delete(ctx, "x", gone))
	dbtest.Await(t, "no configuration", judges(map[string]string{"services": "", "limitranges": "", "secrets": "", "configmaps": ""}))
	if _, err := secret("long"); err != nil {
		t.Errorf("without policies: %v", err)
	}
}

// longWinded is a webhook that allows everything, after 17 MB of spaces.
func longWinded(t *testing.T) admissionv1.WebhookClientConfig {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review reviewv1.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			t.Error(err)
			return
		}
		review.Response = &reviewv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(bytes.Repeat([]byte(" "), 17<<20))
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	return admissionv1.WebhookClientConfig{URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
}

// objects are what the plugins convert with.
var objects = apiserver.NewObjectInterfacesFromScheme(scheme.Scheme)
