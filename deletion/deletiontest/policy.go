package deletiontest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/admission"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/definition"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store/storetest"
)

// policed are the resources whose creates and deletes the policy of a world judges.
var policed = []string{"configmaps", "secrets", "pods", "services", "deployments", "jobs", "gadgets"}

// judged is the namespace of the policy's parameter.
const judged = "policies"

// Policed lets a ValidatingAdmissionPolicy judge the world's collector and Client, by an API
// that serves over HTTP, and serves CustomResourceDefinitions. Deny says what the policy refuses.
func (w *World) Policed() {
	w.T.Helper()
	log := slog.New(slog.DiscardHandler)
	definitions, _ := w.Kinds.Snapshot().Stored(object.Definitions)
	controller := definition.New(w.Store, w.Kinds, definitions, nil, log)
	if err := controller.Load(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.API.ServeHTTP(rw, accesstest.Admin(req))
	}))
	config := &rest.Config{Host: "http://" + web.Listener.Addr().String(), QPS: -1}
	control := accesstest.Control()
	chain, err := admission.New(admission.Config{Client: config, Get: w.Store.Get, Kinds: w.Kinds, Authorizer: control.Authorizer()})
	if err != nil {
		w.T.Fatal(err)
	}
	w.API = api.New(api.Config{Store: w.Store, Kinds: w.Kinds, Access: control, Admission: chain, Logger: log})
	web.Start()
	w.T.Cleanup(func() {
		w.API.Close(context.Background())
		web.CloseClientConnections()
		web.Close()
	})
	storetest.Background(w.T, controller.Run)
	storetest.Background(w.T, chain.Run)
	w.addPolicy(config)
	w.Deny()
}

// policies is what Deny changes.
type policies struct {
	kubernetes.Interface
	probes int
}

func (w *World) addPolicy(config *rest.Config) {
	w.T.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		w.T.Fatal(err)
	}
	w.policies.Interface = client
	ctx, named, none := w.T.Context(), metav1.ObjectMeta{Name: "denied"}, metav1.CreateOptions{}
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: judged}}, none)
	if apierrors.IsAlreadyExists(err) {
		return // another process made all of it
	}
	if err == nil {
		_, err = client.CoreV1().ConfigMaps(judged).Create(ctx, &corev1.ConfigMap{ObjectMeta: named}, none)
	}
	if err == nil {
		_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
			ObjectMeta: named,
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				ParamKind: &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Delete},
					Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: policed},
				}}}},
				Validations: []admissionv1.Validation{{
					Expression: `!params.data.rules.contains(' ' + request.operation + ':' + request.namespace + '/' + request.name + ' ')`,
					Message:    "the policy says no",
				}},
			},
		}, none)
	}
	if err == nil {
		missing := admissionv1.AllowAction
		_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: named,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: named.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
				ParamRef: &admissionv1.ParamRef{Namespace: judged, Name: named.Name, ParameterNotFoundAction: &missing},
			},
		}, none)
	}
	if err != nil {
		w.T.Fatal(err)
	}
}

// Denial is what the policy refuses: "CREATE" or "DELETE" of an object.
func Denial(operation string, key object.Key) string {
	return operation + ":" + key.Namespace + "/" + key.Name
}

// Deny replaces what the policy refuses, and returns when it is in force.
func (w *World) Deny(denials ...string) {
	w.T.Helper()
	w.policies.probes++
	probe := object.Key{Kind: "configmaps", Namespace: judged, Name: fmt.Sprintf("probe-%d", w.policies.probes)}
	rules := " " + strings.Join(append(denials, Denial("DELETE", probe)), " ") + " "
	_, err := w.policies.CoreV1().ConfigMaps(judged).Update(w.T.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "denied"}, Data: map[string]string{"rules": rules},
	}, metav1.UpdateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	asked := object.Object{Key: probe, Body: []byte(`{"metadata":{"name":"` + probe.Name + `","namespace":"` + judged + `"}}`)}
	dbtest.Await(w.T, "the policy is in force", func() bool {
		return w.Client().JudgeCollected(w.T.Context(), asked, metav1.DeleteOptions{}, false) != nil
	})
	w.Later(2 * time.Minute) // what was refused before is asked about again
}

// Client is an administrator, about whose requests the policy is asked.
func (w *World) Client() kind.Client {
	return w.API.ClientOf(w.T.Context(), &user.DefaultInfo{Name: "tester", Groups: []string{user.SystemPrivilegedGroup}})
}
