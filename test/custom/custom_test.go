// Package custom_test follows CustomResourceDefinitions through their life: what they
// declare about their objects, and how soon the server applies it.
package custom_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/test/harness"
)

const (
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	engines     = "/apis/test.exeunt.dev/v1/namespaces/default/engines"
	enginesBeta = "/apis/test.exeunt.dev/v1beta1/namespaces/default/engines"
	mergePatch  = "application/merge-patch+json"
)

// definition is a CRD that uses every feature once.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: engines.test.exeunt.dev}
spec:
  group: test.exeunt.dev
  scope: Namespaced
  names: {plural: engines, singular: engine, kind: Engine, shortNames: [eng], categories: [machines]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.cylinders, statusReplicasPath: .status.cylinders, labelSelectorPath: .status.selector}
    selectableFields: [{jsonPath: .spec.fuel}]
    additionalPrinterColumns:
    - {name: Cylinders, type: integer, jsonPath: .spec.cylinders}
    schema: &schema
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [cylinders]
            x-kubernetes-validations:
            - {rule: "self.fuel != 'steam' || self.cylinders <= 2", message: steam engines have at most two cylinders}
            - {rule: "self.cylinders >= oldSelf.cylinders", message: cylinders are not removed}
            properties:
              cylinders: {type: integer, minimum: 1}
              fuel: {type: string, default: petrol, enum: [petrol, steam]}
              options: {type: object, x-kubernetes-preserve-unknown-fields: true}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, count: {type: integer, default: 1}}
          status:
            type: object
            properties:
              cylinders: {type: integer}
              selector: {type: string}
              running: {type: boolean}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    deprecationWarning: engines v1beta1 is old
    subresources: {status: {}}
    selectableFields: [{jsonPath: .spec.fuel}]
    schema: *schema
`

func crd(t *testing.T) string {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func engine(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"test.exeunt.dev/v1","kind":"Engine","metadata":{"name":%q},"spec":%s}`, name, spec)
}

// rig is a server with a client that fails the test on an unexpected answer.
type rig struct {
	*testing.T
	s *harness.Server
	h *harness.HTTP
}

// do sends a request that must be answered with this code.
func (r rig) do(code int, method, path, body string) harness.Answer {
	r.Helper()
	request := harness.Request{Method: method, Path: path, Body: body}
	if method == "PATCH" {
		request.ContentType = mergePatch
	}
	a := r.h.Do(r, request)
	if a.Code != code {
		r.Fatalf("%s %s: answered %d, want %d\n%s", method, path, a.Code, code, a.Body)
	}
	return a
}

// has checks fields of an answer: dotted path to compact JSON ("" means absent).
func (r rig) has(a harness.Answer, fields map[string]string) {
	r.Helper()
	for path, want := range fields {
		if got := a.Field(path); got != want {
			r.Errorf("%s is %s, want %s in %s", path, got, want, a.Body)
		}
	}
}

// define creates the CRD and waits until its objects are served.
func (r rig) define() {
	r.Helper()
	r.do(201, "POST", definitions, crd(r.T))
	r.served(200)
}

// served waits until the kind's path answers with a code. The limit is one second.
func (r rig) served(code int) {
	r.Helper()
	harness.Within(r, time.Second, "serving follows the definition", func() error {
		if a := r.h.Do(r, harness.Request{Method: "GET", Path: engines}); a.Code != code {
			return fmt.Errorf("GET %s answers %d, want %d", engines, a.Code, code)
		}
		return nil
	})
}

func each(t *testing.T, test func(r rig)) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		test(rig{T: t, s: s, h: s.HTTP()})
	})
}

// TestEstablish: the server accepts, establishes, serves, discovers and explains a
// definition within a second. It does not accept a second definition with the same names.
func TestEstablish(t *testing.T) {
	each(t, func(r rig) {
		r.define()
		a := r.do(200, "GET", definitions+"/engines.test.exeunt.dev", "")
		conditions := conditions(r.T, a)
		if conditions["Established"] != "True" || conditions["NamesAccepted"] != "True" {
			r.Fatalf("conditions %v", conditions)
		}
		r.has(a, map[string]string{"status.acceptedNames.plural": `"engines"`, "status.storedVersions": `["v1"]`, "metadata.generation": "1"})
		for path, text := range map[string]string{
			"/apis/test.exeunt.dev/v1":            `"name":"engines/scale"`,
			"/apis/test.exeunt.dev/v1beta1":       `"name":"engines"`,
			"/apis":                               `"name":"test.exeunt.dev"`,
			"/openapi/v3":                         `apis/test.exeunt.dev/v1`,
			"/openapi/v3/apis/test.exeunt.dev/v1": `"minimum":1`,
			"/openapi/v2":                         `dev.exeunt.test.v1.Engine`,
		} {
			harness.Within(r, time.Second, path+" follows", func() error {
				if a := r.h.Do(r, harness.Request{Method: "GET", Path: path}); !strings.Contains(string(a.Body), text) {
					return fmt.Errorf("no %s in GET %s (%d)", text, path, a.Code)
				}
				return nil
			})
		}
		rival := strings.NewReplacer("engines.test", "motors.test", `"plural":"engines"`, `"plural":"motors"`, `"singular":"engine"`, `"singular":"motor"`).Replace(crd(r.T))
		r.do(201, "POST", definitions, rival)
		harness.Until(r, "the rival's verdict", func() error {
			a := r.do(200, "GET", definitions+"/motors.test.exeunt.dev", "")
			if c := conditionsOf(a); c["NamesAccepted"] != "False" || c["Established"] == "True" {
				return fmt.Errorf("conditions %v", c)
			}
			return nil
		})
		r.do(404, "GET", "/apis/test.exeunt.dev/v1/namespaces/default/motors", "")
		// When the first definition is gone, its names are free.
		r.do(200, "DELETE", definitions+"/engines.test.exeunt.dev", "")
		harness.Until(r, "the rival to be served", func() error {
			if a := r.h.Do(r, harness.Request{Method: "GET", Path: "/apis/test.exeunt.dev/v1/namespaces/default/motors"}); a.Code != 200 {
				return fmt.Errorf("answers %d", a.Code)
			}
			return nil
		})
	})
}

func conditions(t *testing.T, a harness.Answer) map[string]string {
	t.Helper()
	all := conditionsOf(a)
	if all == nil {
		t.Fatalf("no conditions in %s", a.Body)
	}
	return all
}

func conditionsOf(a harness.Answer) map[string]string {
	var crd struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if json.Unmarshal(a.Body, &crd) != nil {
		return nil
	}
	all := map[string]string{}
	for _, c := range crd.Status.Conditions {
		all[c.Type] = c.Status
	}
	return all
}

// TestSchema: the server fills in defaults, drops unknown fields, enforces rules.
func TestSchema(t *testing.T) {
	each(t, func(r rig) {
		r.define()
		a := r.do(201, "POST", engines, engine("a", `{"cylinders":4,"wings":2,"options":{"any":{"thing":1}},"parts":[{"name":"bolt"}]}`))
		r.has(a, map[string]string{
			"spec.fuel": `"petrol"`, "spec.wings": "", "spec.options.any.thing": "1", "spec.parts": `[{"count":1,"name":"bolt"}]`, "metadata.generation": "1",
		})
		for name, c := range map[string]struct{ spec, message string }{
			"a missing field":      {`{"fuel":"petrol"}`, "spec.cylinders"},
			"a wrong type":         {`{"cylinders":"four"}`, "spec.cylinders"},
			"too small":            {`{"cylinders":0}`, "spec.cylinders"},
			"not in the list":      {`{"cylinders":1,"fuel":"coal"}`, "spec.fuel"},
			"a rule across fields": {`{"cylinders":3,"fuel":"steam"}`, "steam engines have at most two cylinders"},
			"a key twice":          {`{"cylinders":1,"parts":[{"name":"x"},{"name":"x"}]}`, "spec.parts"},
		} {
			a := r.do(422, "POST", engines, engine("bad", c.spec))
			if !strings.Contains(a.Field("message"), c.message) {
				r.Errorf("%s: message %s, want %q in it", name, a.Field("message"), c.message)
			}
		}
		a = r.do(400, "POST", engines+"?fieldValidation=Strict", engine("bad", `{"cylinders":4,"wings":2}`))
		if !strings.Contains(a.Field("message"), `unknown field \"spec.wings\"`) {
			r.Errorf("strict: %s", a.Body)
		}
		a = r.do(422, "PATCH", engines+"/a", `{"spec":{"cylinders":3}}`)
		if !strings.Contains(a.Field("message"), "cylinders are not removed") {
			r.Errorf("transition rule: %s", a.Body)
		}
		r.has(r.do(200, "PATCH", engines+"/a", `{"spec":{"cylinders":6}}`), map[string]string{"metadata.generation": "2", "spec.cylinders": "6"})
		r.do(201, "POST", engines, engine("s", `{"cylinders":2,"fuel":"steam"}`))
		r.has(r.do(200, "GET", engines+"?fieldSelector=spec.fuel%3Dsteam", ""), map[string]string{"items.0.metadata.name": `"s"`, "items.1": ""})
	})
}

// TestSubresources: status and scale are written through their own endpoints only.
func TestSubresources(t *testing.T) {
	each(t, func(r rig) {
		r.define()
		a := r.do(201, "POST", engines, strings.Replace(engine("a", `{"cylinders":4}`), `"spec"`, `"status":{"running":true},"spec"`, 1))
		r.has(a, map[string]string{"status": ""})
		a = r.do(200, "PATCH", engines+"/a/status", `{"spec":{"cylinders":9},"metadata":{"labels":{"x":"y"}},"status":{"running":true,"cylinders":4,"selector":"a=b"}}`)
		r.has(a, map[string]string{"spec.cylinders": "4", "status.running": "true", "metadata.generation": "1"})
		r.has(r.do(200, "PATCH", engines+"/a", `{"status":{"running":false}}`), map[string]string{"status.running": "true"})
		r.has(r.do(200, "GET", engines+"/a/scale", ""), map[string]string{
			"kind": `"Scale"`, "apiVersion": `"autoscaling/v1"`, "spec.replicas": "4", "status.replicas": "4", "status.selector": `"a=b"`,
		})
		r.has(r.do(200, "PATCH", engines+"/a/scale", `{"spec":{"replicas":8}}`), map[string]string{"spec.replicas": "8"})
		r.has(r.do(200, "GET", engines+"/a", ""), map[string]string{"spec.cylinders": "8", "metadata.generation": "2"})
		table := r.h.Do(r, harness.Request{Method: "GET", Path: engines, Accept: "application/json;as=Table;v=v1;g=meta.k8s.io"})
		r.has(table, map[string]string{
			"kind": `"Table"`, "columnDefinitions.1.name": `"Cylinders"`, "rows.0.cells.0": `"a"`, "rows.0.cells.1": "8", "rows.0.object.kind": `"PartialObjectMetadata"`,
		})
	})
}

// TestVersions: both versions serve the same object; the deprecated one sends a warning.
func TestVersions(t *testing.T) {
	each(t, func(r rig) {
		r.define()
		r.do(201, "POST", engines, engine("a", `{"cylinders":4}`))
		a := r.do(200, "GET", enginesBeta+"/a", "")
		r.has(a, map[string]string{"apiVersion": `"test.exeunt.dev/v1beta1"`, "spec.cylinders": "4"})
		if w := a.Header.Get("Warning"); !strings.Contains(w, "engines v1beta1 is old") {
			r.Errorf("Warning header %q", w)
		}
		r.has(r.do(200, "PATCH", enginesBeta+"/a", `{"spec":{"cylinders":5}}`), map[string]string{"apiVersion": `"test.exeunt.dev/v1beta1"`})
		r.has(r.do(200, "GET", engines+"/a", ""), map[string]string{"apiVersion": `"test.exeunt.dev/v1"`, "spec.cylinders": "5"})
		list := r.do(200, "GET", enginesBeta, "")
		r.has(list, map[string]string{"kind": `"EngineList"`, "apiVersion": `"test.exeunt.dev/v1beta1"`, "items.0.apiVersion": `"test.exeunt.dev/v1beta1"`})
		stream := r.h.Watch(r, enginesBeta+"?watch=1&resourceVersion="+strings.Trim(list.Field("metadata.resourceVersion"), `"`))
		r.do(200, "PATCH", engines+"/a", `{"spec":{"cylinders":6}}`)
		if e := stream.Next(r); e.Field("apiVersion") != `"test.exeunt.dev/v1beta1"` || e.Field("spec.cylinders") != "6" {
			r.Errorf("watch shows %v", e)
		}
	})
}

// TestSchemaChanges: the server knows a new field within a second; objects that were
// stored before get the new defaults when they are read.
func TestSchemaChanges(t *testing.T) {
	each(t, func(r rig) {
		r.define()
		r.do(201, "POST", engines, engine("a", `{"cylinders":4}`))
		current := r.do(200, "GET", definitions+"/engines.test.exeunt.dev", "")
		changed := strings.ReplaceAll(string(current.Body), `"fuel":{`, `"colour":{"type":"string","default":"grey"},"fuel":{`)
		r.do(200, "PUT", definitions+"/engines.test.exeunt.dev", changed)
		harness.Within(r, time.Second, "the new schema", func() error {
			a := r.do(200, "GET", engines+"/a", "")
			if a.Field("spec.colour") != `"grey"` {
				return fmt.Errorf("spec is %s", a.Field("spec"))
			}
			return nil
		})
		r.has(r.do(201, "POST", engines, engine("b", `{"cylinders":4,"colour":"red"}`)), map[string]string{"spec.colour": `"red"`})
		r.s.Restart()
		r.h = r.s.HTTP()
		r.has(r.do(200, "GET", engines+"/b", ""), map[string]string{"spec.colour": `"red"`})
	})
}

// TestDelete: a deleted definition takes its objects along, waits for their finalizers,
// and leaves nothing that a new definition of the same kind would find.
func TestDelete(t *testing.T) {
	each(t, func(r rig) {
		r.define()
		for i := range 25 {
			r.do(201, "POST", engines, engine(fmt.Sprint("e-", i), `{"cylinders":4}`))
		}
		held := strings.Replace(engine("held", `{"cylinders":4}`), `"name":"held"`, `"name":"held","finalizers":["test.exeunt.dev/hold"]`, 1)
		r.do(201, "POST", engines, held)
		a := r.do(200, "DELETE", definitions+"/engines.test.exeunt.dev", "")
		r.has(a, map[string]string{"metadata.finalizers": `["customresourcecleanup.apiextensions.k8s.io"]`})
		harness.Until(r, "the free objects to go", func() error {
			list := r.do(200, "GET", engines, "")
			if list.Field("items.0.metadata.name") != `"held"` || list.Field("items.1") != "" {
				return fmt.Errorf("left: %.300s", list.Body)
			}
			return nil
		})
		r.has(r.do(200, "GET", engines+"/held", ""), map[string]string{"metadata.finalizers": `["test.exeunt.dev/hold"]`})
		harness.Until(r, "creation to be refused", func() error {
			if a := r.h.Do(r, harness.Request{Method: "POST", Path: engines, Body: engine("late", `{"cylinders":4}`)}); a.Code != 403 {
				return fmt.Errorf("answers %d %s", a.Code, a.Body)
			}
			return nil
		})
		if c := conditionsOf(r.do(200, "GET", definitions+"/engines.test.exeunt.dev", "")); c["Terminating"] != "True" {
			r.Errorf("conditions %v, want Terminating", c)
		}
		r.do(200, "PATCH", engines+"/held", `{"metadata":{"finalizers":null}}`)
		harness.Until(r, "the definition to go", func() error {
			if a := r.h.Do(r, harness.Request{Method: "GET", Path: definitions + "/engines.test.exeunt.dev"}); a.Code != 404 {
				return fmt.Errorf("still there: %s", a.Body)
			}
			return nil
		})
		r.served(404)
		r.define()
		r.has(r.do(200, "GET", engines, ""), map[string]string{"items": "[]"})
	})
}

// TestHeld: the guard holds a definition with all objects of its kind, which stay usable,
// until a client confirms the number of objects.
func TestHeld(t *testing.T) {
	for _, name := range harness.Engines(t.Name()) {
		t.Run(name, func(t *testing.T) {
			s := harness.Start(t, name, "--max-cascade=3")
			r := rig{T: t, s: s, h: s.HTTP()}
			r.define()
			for i := range 5 {
				r.do(201, "POST", engines, engine(fmt.Sprint("e-", i), `{"cylinders":4}`))
			}
			r.do(200, "DELETE", definitions+"/engines.test.exeunt.dev", "")
			harness.Until(r, "the guard's reason", func() error {
				why := s.Exeunt(t, "why", "crd/engines.test.exeunt.dev")
				if !strings.Contains(why.Stdout, "6 objects would go, and 3 may") {
					return fmt.Errorf("why says: %s%s", why.Stdout, why.Stderr)
				}
				return nil
			})
			if r.do(200, "GET", engines, "").Field("items.4.metadata.name") != `"e-4"` {
				r.Error("objects of a held definition have gone")
			}
			r.do(200, "PATCH", definitions+"/engines.test.exeunt.dev", `{"metadata":{"annotations":{"lifecycle.exeunt.dev/confirm-cascade":"6"}}}`)
			r.served(404)
		})
	}
}
