package start_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/test/harness"
)

var (
	kinds   = flag.Int("kinds", 200, "how many CustomResourceDefinitions BenchmarkKinds creates")
	fields  = flag.Int("fields", 125, "how many fields each of them has")
	profile = flag.String("profile", "", "directory for profiles of the server")
)

// BenchmarkKinds creates many definitions, as Crossplane's providers bring, and measures the memory of
// the server, the time and processor time until all are established and until the server is ready
// again, the first list of a kind, and the OpenAPI documents.
func BenchmarkKinds(b *testing.B) {
	for _, engine := range []string{harness.SQLite, harness.Postgres} {
		b.Run(engine, func(b *testing.B) {
			for b.Loop() {
				measureKinds(b, harness.Start(b, engine))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func measureKinds(b *testing.B, s *harness.Server) {
	m := &meter{b: b, s: s}
	m.connect()
	m.memory("empty")
	m.timed("established", func() {
		var next atomic.Int64
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for i := next.Add(1) - 1; i < int64(*kinds); i = next.Add(1) - 1 {
					m.request(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(int(i)), http.StatusCreated)
				}
			})
		}
		clients.Wait()
		for i := range *kinds {
			harness.Until(b, "a kind is served", func() error { return m.try(kindPath(i)) })
		}
	})
	m.memory("established")
	s.Stop()
	began := time.Now()
	s.Start()
	b.ReportMetric(time.Since(began).Seconds(), "start-s")
	b.ReportMetric(m.processor().Seconds(), "start-cpu-s")
	m.connect()
	m.memory("started")
	m.timed("first-get", func() { m.request(http.MethodGet, kindPath(*kinds/2), nil, http.StatusOK) })
	m.timed("discovery", func() { m.request(http.MethodGet, "/apis", nil, http.StatusOK) })
	m.timed("first-create", func() { m.request(http.MethodPost, kindPath(*kinds/3), instance(*kinds/3), http.StatusCreated) })
	m.timed("create-each", func() {
		for i := range *kinds {
			m.request(http.MethodPost, kindPath(i), bytes.Replace(instance(i), []byte("first"), []byte("each"), 1), http.StatusCreated)
		}
	})
	m.memory("created")
	m.timed("openapi-v3", func() { m.request(http.MethodGet, "/openapi/v3", nil, http.StatusOK) })
	m.memory("openapi-v3")
	m.timed("openapi-v2", func() { m.request(http.MethodGet, "/openapi/v2", nil, http.StatusOK) })
	m.memory("openapi-v2")
}

type meter struct {
	b      *testing.B
	s      *harness.Server
	client *http.Client
	host   string
}

func (m *meter) connect() {
	config := m.s.Config()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		m.b.Fatal(err)
	}
	m.client, m.host = client, config.Host
}

func (m *meter) try(path string) error {
	answer, err := m.client.Get(m.host + path)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, answer.Status)
	}
	return nil
}

func (m *meter) request(method, path string, body []byte, want int) {
	req, err := http.NewRequest(method, m.host+path, bytes.NewReader(body))
	if err != nil {
		m.b.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := m.client.Do(req)
	if err != nil {
		m.b.Error(err)
		return
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != want {
		m.b.Errorf("%s %s: %s, %v: %.500s", method, path, answer.Status, err, text)
	}
}

// timed reports how long something takes, and the processor time of the server.
func (m *meter) timed(name string, do func()) {
	began, cpu := time.Now(), m.processor()
	var profiled sync.WaitGroup
	if *profile != "" {
		profiled.Go(func() { m.keep("/debug/pprof/profile?seconds=20", name+"-cpu") })
	}
	do()
	m.b.ReportMetric(time.Since(began).Seconds(), name+"-s")
	m.b.ReportMetric((m.processor() - cpu).Seconds(), name+"-cpu-s")
	profiled.Wait()
}

// processor is the processor time of the server until now, in ticks of 10 ms.
func (m *meter) processor() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.s.Pid()))
	if err != nil {
		m.b.Fatal(err)
	}
	values := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, _ := strconv.Atoi(values[11])
	system, _ := strconv.Atoi(values[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory reports the resident memory, and writes a profile of the heap.
func (m *meter) memory(name string) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.s.Pid()))
	if err != nil {
		m.b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		m.b.Fatal(err)
	}
	m.b.ReportMetric(float64(kb)/1000, name+"-MB")
	if *profile == "" {
		return
	}
	m.keep("/debug/pprof/heap?gc=1", name)
}

// keep writes a profile of the server to a file.
func (m *meter) keep(path, name string) {
	answer, err := m.client.Get(m.host + path)
	if err != nil {
		m.b.Error(err)
		return
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err == nil {
		err = os.WriteFile(filepath.Join(*profile, name+".pprof"), content, 0o600)
	}
	if err != nil {
		m.b.Error(err)
	}
}

const perGroup = 20 // kinds of a group, as in Crossplane's larger providers

func groupOf(i int) string { return fmt.Sprintf("g%d.kinds.example.org", i/perGroup) }

func kindPath(i int) string { return fmt.Sprintf("/apis/%s/v1beta1/resource%ds", groupOf(i), i) }

func instance(i int) []byte {
	return []byte(fmt.Sprintf(`{"apiVersion":%q,"kind":"Resource%d","metadata":{"name":"first"},"spec":{"deletionPolicy":"Delete","forProvider":{"field1":"v"}}}`, groupOf(i)+"/v1beta1", i))
}

// definition is one like those of Crossplane's providers: most fields are twice in the spec, once in
// the status, with texts, a few enumerations and defaults, and rules in CEL.
func definition(i int) []byte {
	type object = map[string]any
	some := func(n int) object {
		all := object{}
		for f := range n {
			property := object{"type": "string", "description": fmt.Sprintf("The field %d of the resource, as the provider's own documentation describes it. Changing this creates a new resource.", f)}
			switch f % 5 {
			case 2:
				property["type"] = "number"
			case 3:
				property = object{"type": "array", "description": property["description"], "items": object{"type": "string"}, "x-kubernetes-list-type": "set"}
			case 4:
				property = object{"type": "object", "description": property["description"], "additionalProperties": object{"type": "string"}, "x-kubernetes-map-type": "granular"}
			}
			all[fmt.Sprintf("field%d", f)] = property
		}
		return all
	}
	third := (*fields - 5) / 3
	plural := fmt.Sprintf("resource%ds", i)
	crd := object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": plural + "." + groupOf(i)},
		"spec": object{
			"group": groupOf(i), "scope": "Cluster",
			"names": object{"kind": fmt.Sprintf("Resource%d", i), "plural": plural, "categories": []string{"crossplane", "managed"}},
			"versions": []object{{
				"name": "v1beta1", "served": true, "storage": true, "subresources": object{"status": object{}},
				"additionalPrinterColumns": []object{{"name": "SYNCED", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Synced')].status"}},
				"schema": object{"openAPIV3Schema": object{"type": "object", "required": []string{"spec"}, "properties": object{
					"spec": object{
						"type": "object", "required": []string{"forProvider"},
						"x-kubernetes-validations": []object{{"rule": "has(self.forProvider.field1) || has(self.initProvider)", "message": "spec.forProvider.field1 is a required parameter"}},
						"properties": object{
							"deletionPolicy": object{"type": "string", "enum": []string{"Orphan", "Delete"}, "default": "Delete"},
							"forProvider":    object{"type": "object", "properties": some(third)},
							"initProvider":   object{"type": "object", "properties": some(third)},
						},
					},
					"status": object{"type": "object", "properties": object{"atProvider": object{"type": "object", "properties": some(third)}}},
				}}},
			}},
		},
	}
	text, err := json.Marshal(crd)
	if err != nil {
		panic(err) // maps and texts
	}
	return text
}
