package attack_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// definition is a CustomResourceDefinition with a schema of its spec.
func definition(t *testing.T, plural string, spec fields) string {
	t.Helper()
	return text(t, fields{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": fields{"name": plural + ".example.com"},
		"spec": fields{
			"group": "example.com", "scope": "Namespaced", "names": fields{"plural": plural, "kind": strings.ToUpper(plural[:1]) + plural[1:]},
			"versions": []fields{{"name": "v1", "served": true, "storage": true, "schema": fields{
				"openAPIV3Schema": fields{"type": "object", "properties": fields{"spec": spec}},
			}}},
		},
	})
}

// TestExpensiveRules: rules whose cost has no bound are refused, and those that cost too much for
// one object refuse that object, as in Kubernetes. The server answers other clients meanwhile.
func TestExpensiveRules(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		a := newTarget(t, s)
		a.create(t, configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"probe"}}`)
		const cubed = "self.all(x, self.all(y, self.all(z, x == y || y == z)))"
		list := fields{"type": "array", "items": fields{"type": "string"}, "x-kubernetes-validations": []fields{{"rule": cubed}}}
		many := fields{}
		for i := range 10_000 {
			many[fmt.Sprint("field", i)] = fields{"type": "string", "maxLength": 10}
		}
		ruled := fields{}
		for i := range 300 {
			ruled[fmt.Sprint("field", i)] = fields{"type": "string", "maxLength": 10, "x-kubernetes-validations": []fields{{"rule": fmt.Sprintf("self != 'a%d'", i)}}}
		}
		deep := fields{"type": "string"}
		for range 200 {
			deep = fields{"type": "object", "properties": fields{"a": deep}}
		}
		p := a.probe(t)
		for _, d := range []struct {
			name  string
			spec  fields
			codes []int
			says  string
		}{
			{"cubes", list, []int{422}, "exceeds budget"},
			{"patterns", fields{"type": "string", "pattern": "((((a{100}){100}){100}){100}){100}"}, []int{422}, "pattern"},
			{"manies", fields{"type": "object", "properties": many}, []int{201, 413, 422}, ""},
			{"ruleds", fields{"type": "object", "properties": ruled}, []int{201, 422}, ""},
			{"deeps", deep, []int{201, 400, 422}, ""},
		} {
			start := time.Now()
			answer := a.http.Do(t, harness.Request{Method: "POST", Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", Body: definition(t, d.name, d.spec)})
			t.Logf("%s: %d after %v: %.200s", d.name, answer.Code, time.Since(start).Round(time.Millisecond), answer.Body)
			if !slices.Contains(d.codes, answer.Code) || !strings.Contains(string(answer.Body), d.says) {
				t.Errorf("%s: %d %.300s", d.name, answer.Code, answer.Body)
			}
		}
		// A policy has no schema to estimate by: what it spends is counted.
		a.create(t, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", text(t, fields{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": fields{"name": "cubes"},
			"spec": fields{
				"failurePolicy":    "Fail",
				"matchConstraints": fields{"resourceRules": []fields{{"operations": []string{"CREATE"}, "apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"configmaps"}}}},
				"validations":      []fields{{"expression": "!has(object.data) || object.data.all(x, object.data.all(y, object.data.all(z, x == y || y != z || true)))"}},
			},
		}))
		a.create(t, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", text(t, fields{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": fields{"name": "cubes"},
			"spec": fields{"policyName": "cubes", "validationActions": []string{"Deny"}},
		}))
		data := fields{}
		for i := range 2000 {
			data[fmt.Sprint("k", i)] = "v"
		}
		harness.Until(t, "the policy refuses", func() error {
			answer := a.http.Do(t, harness.Request{Method: "POST", Path: configMaps, Body: text(t, fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"generateName": "cubes-"}, "data": data})})
			if answer.Code == http.StatusCreated {
				return fmt.Errorf("it was created")
			}
			if !strings.Contains(string(answer.Body), "cost") && !strings.Contains(string(answer.Body), "budget") {
				t.Errorf("a policy that spends too much: %d %.400s", answer.Code, answer.Body)
			}
			return nil
		})
		p.end()
		a.create(t, configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"after"},"data":{"a":"b"}}`)
	})
}
