package api

import (
	"fmt"
	"strings"
)

// Rows of TestWritePathsAgree. NAME is a name that no other row uses.
//
// The fast path hands a row with library to the library. Such rows show that it does
// nothing before.

var createRows = []row{
	{name: "plain", url: configMaps, body: `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"NAME","labels":{"x":"y"},"annotations":{"k":"v"}},"data":{"b":"c"},"binaryData":{"d":"AQI="}}`},
	{name: "without kind and apiVersion", url: configMaps, body: `{"metadata":{"name":"NAME"},"data":{"b":"c"}}`},
	{name: "without a Content-Type", url: configMaps, body: `{"metadata":{"name":"NAME"},"data":{"b":"c"}}`, headers: []string{"Content-Type: "}},
	{name: "generateName", url: configMaps, body: `{"metadata":{"generateName":"a-"}}`},
	{name: "field manager", url: configMaps + "?fieldManager=me", body: `{"metadata":{"name":"NAME"},"data":{"b":"c"}}`},
	{name: "namespace in the object", url: "/api/v1/namespaces/shop/secrets", body: `{"metadata":{"name":"NAME","namespace":"shop"},"stringData":{"p":"q"}}`},
	{name: "another namespace in the object", url: "/api/v1/namespaces/shop/secrets", body: `{"metadata":{"name":"NAME","namespace":"other"}}`, library: true},
	{name: "namespace that does not exist", url: "/api/v1/namespaces/nowhere/secrets", body: `{"metadata":{"name":"NAME"}}`},
	{name: "system fields are the server's", url: configMaps, body: `{"metadata":{"name":"NAME","uid":"mine","creationTimestamp":"2001-01-01T00:00:00Z","deletionTimestamp":"2001-01-01T00:00:00Z","selfLink":"x","generation":7}}`},
	{name: "owner and finalizer", url: configMaps, body: `{"metadata":{"name":"NAME","finalizers":["a.example/x"],"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u","blockOwnerDeletion":true}]}}`},
	{name: "two owners alike", url: configMaps, body: `{"metadata":{"name":"NAME","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"},{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"}]}}`, library: true},
	{name: "defaults", url: deployments, body: `{"metadata":{"name":"NAME"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"}]}]}}},"status":{"replicas":9}}`},
	{name: "pod", url: "/api/v1/namespaces/shop/pods", body: `{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"c","image":"i"}]}}`},
	{name: "cluster-scoped", url: "/api/v1/namespaces", body: `{"metadata":{"name":"NAME","namespace":""}}`},
	{name: "invalid name", url: configMaps, body: `{"metadata":{"name":"UPPER"}}`},
	{name: "no name", url: configMaps, body: `{"metadata":{}}`},
	{name: "invalid object", url: deployments, body: `{"metadata":{"name":"NAME"},"spec":{}}`},
	{name: "resourceVersion", url: configMaps, body: `{"metadata":{"name":"NAME","resourceVersion":"7"}}`},
	{name: "unknown field, warned of", url: configMaps, body: `{"metadata":{"name":"NAME"},"dta":{}}`, library: true},
	{name: "unknown field, strict", url: configMaps + "?fieldValidation=Strict", body: `{"metadata":{"name":"NAME"},"dta":{}}`, library: true},
	{name: "unknown field, ignored", url: configMaps + "?fieldValidation=Ignore", body: `{"metadata":{"name":"NAME"},"dta":{}}`},
	{name: "bad fieldValidation", url: configMaps + "?fieldValidation=Maybe", body: `{"metadata":{"name":"NAME"}}`, library: true},
	{name: "duplicate field", url: configMaps, body: `{"metadata":{"name":"NAME"},"data":{"a":"1","a":"2"}}`, library: true},
	{name: "another kind", url: configMaps, body: `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"NAME"}}`, library: true},
	{name: "another version", url: configMaps, body: `{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"NAME"}}`, library: true},
	{name: "another kind, in other letters", url: configMaps, body: `{"Kind":"Secret","apiVersion":"v1","metadata":{"name":"NAME"}}`, library: true},
	{name: "another kind, in other letters, ignored", url: configMaps + "?fieldValidation=Ignore", body: `{"Kind":"Secret","apiVersion":"v1","metadata":{"name":"NAME"}}`, library: true},
	{name: "kind twice", url: configMaps, body: `{"kind":"Secret","apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"}}`, library: true},
	{name: "kind alone", url: configMaps, body: `{"kind":"ConfigMap","metadata":{"name":"NAME"}}`},
	{name: "version alone", url: configMaps, body: `{"apiVersion":"v1","metadata":{"name":"NAME"}}`},
	{name: "version of another group", url: configMaps, body: `{"apiVersion":"apps/v1","metadata":{"name":"NAME"}}`, library: true},
	{name: "strange version", url: configMaps, body: `{"apiVersion":"a/b/c","metadata":{"name":"NAME"}}`, library: true},
	{name: "kind of a wrong type", url: configMaps, body: `{"kind":7,"metadata":{"name":"NAME"}}`, library: true},
	{name: "a list", url: configMaps, body: `[]`, library: true},
	{name: "two bodies", url: configMaps, body: `{"metadata":{"name":"NAME"}}{}`, library: true},
	{name: "custom, without kind", url: widgets, body: `{"metadata":{"name":"NAME"}}`, library: true},
	{name: "custom, another kind", url: widgets, body: `{"apiVersion":"test.dev/v1","kind":"Gadget","metadata":{"name":"NAME"}}`, library: true},
	{name: "custom, another version", url: widgets, body: `{"apiVersion":"test.dev/v2","kind":"Widget","metadata":{"name":"NAME"}}`, library: true},
	{name: "broken JSON", url: configMaps, body: `{"metadata":`, library: true},
	{name: "no body", url: configMaps, body: ``, library: true},
	{name: "protobuf of another kind", url: configMaps, body: `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"NAME"}}`, protobuf: true, library: true},
	{name: "protobuf, dry run", url: configMaps + "?dryRun=All", body: `{"metadata":{"name":"NAME"}}`, protobuf: true, library: true},
	{name: "protobuf, answered as JSON", url: configMaps, body: `{"metadata":{"name":"NAME"}}`, headers: []string{"Accept: application/json"}, protobuf: true},
	{name: "protobuf that is none", url: configMaps, body: `{"metadata":{"name":"NAME"}}`, headers: []string{"Content-Type: application/vnd.kubernetes.protobuf"}, library: true},
	{name: "wrong type", url: configMaps, body: `{"metadata":{"name":7}}`, library: true},
	{name: "managed fields sent along", url: configMaps, body: `{"metadata":{"name":"NAME","managedFields":[{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]},"data":{"b":"c"}}`, library: true},
	{name: "definition", url: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: `{"metadata":{"name":"NAMEs.example.dev"},"spec":{"group":"example.dev","names":{"plural":"NAMEs","kind":"Widget"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`},
	{name: "no user agent", url: configMaps, body: `{"metadata":{"name":"NAME"},"data":{"b":"c"}}`, headers: []string{"User-Agent: "}},
	{name: "long user agent", url: configMaps, body: `{"metadata":{"name":"NAME"},"data":{"b":"c"}}`, headers: []string{"User-Agent: " + longAgent}},
	{name: "unprintable field manager", url: configMaps + "?fieldManager=a%07b", body: `{"metadata":{"name":"NAME"}}`, library: true},
	{name: "long field manager", url: configMaps + "?fieldManager=" + longAgent, body: `{"metadata":{"name":"NAME"}}`, library: true},
	{name: "dry run", url: configMaps + "?dryRun=All", body: `{"metadata":{"name":"NAME"}}`, library: true},
	{name: "content type with parameters", url: configMaps, body: `{"metadata":{"name":"NAME"}}`, headers: []string{"Content-Type: application/json; charset=utf-8"}, library: true},
	{name: "YAML", url: configMaps, body: "metadata:\n  name: NAME\n", headers: []string{"Content-Type: application/yaml"}, library: true},
	{name: "unknown content type", url: configMaps, body: `{"metadata":{"name":"NAME"}}`, headers: []string{"Content-Type: text/plain"}},
	{name: "a name in the path", url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME"}}`},
	{name: "exists", given: []request{post(configMaps, `{"metadata":{"name":"NAME"}}`)}, url: configMaps, body: `{"metadata":{"name":"NAME"}}`},
	{name: "exists and is being deleted", given: []request{post(configMaps, `{"metadata":{"name":"NAME","finalizers":["a.example/x"]}}`), {"DELETE", configMaps + "/NAME", ""}},
		url: configMaps, body: `{"metadata":{"name":"NAME"}}`},
	{name: "custom", url: widgets, body: `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"replicas":2,"parts":["a","b"]},"status":{"replicas":1}}`},
	{name: "custom, unknown field", url: widgets, body: `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"size":2}}`, library: true},
	{name: "custom, invalid", url: widgets, body: `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"replicas":-2}}`},
}

// longAgent is longer than a manager's name may be.
var longAgent = strings.Repeat("an-agent-with-a-long-name-", 6)

const (
	deployments = "/apis/apps/v1/namespaces/shop/deployments"
	leases      = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
	pods        = "/api/v1/namespaces/shop/pods"
)

// The objects that updates and deletes start with.
var (
	aConfigMap = []request{post(configMaps, `{"metadata":{"name":"NAME","labels":{"x":"y"}},"data":{"b":"c","d":"e"}}`)}
	// An old one: another manager took over its data long ago.
	anOldConfigMap = append(aConfigMap[:1:1], request{"PUT", configMaps + "/NAME", `{"metadata":{"name":"NAME","labels":{"x":"y"},"managedFields":[
		{"manager":"tester","operation":"Update","apiVersion":"v1","time":"2001-02-03T04:05:06Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:b":{}}}},
		{"manager":"other","operation":"Apply","apiVersion":"v1","time":"2001-02-03T04:05:06Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:d":{}},"f:metadata":{"f:labels":{"f:x":{}}}}}]},
		"data":{"b":"c","d":"e"}}`})
	anUnownedConfigMap = append(aConfigMap[:1:1], request{"PUT", configMaps + "/NAME", `{"metadata":{"name":"NAME","managedFields":[]},"data":{"b":"c"}}`})
	aHeldConfigMap     = []request{post(configMaps, `{"metadata":{"name":"NAME","finalizers":["a.example/x","a.example/y"]},"data":{"b":"c"}}`)}
	aLeavingConfigMap  = append(aHeldConfigMap[:1:1], request{"DELETE", configMaps + "/NAME", ""})
	aDeployment        = []request{post(deployments, `{"metadata":{"name":"NAME"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}]}]}}}}`)}
	aPod               = []request{post(pods, `{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)}
	aBoundPod          = []request{post(pods, `{"metadata":{"name":"NAME"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)}
	aWidget            = []request{post(widgets, `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"replicas":2,"parts":["a","b"]}}`)}
	aLease             = []request{post(leases, `{"metadata":{"name":"NAME"},"spec":{"holderIdentity":"me"}}`)}
	aNamespace         = []request{post("/api/v1/namespaces", `{"metadata":{"name":"NAME"}}`)}
)

var updateRows = []row{
	{name: "a value", given: aConfigMap, url: configMaps + "/NAME", body: `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"NAME","labels":{"x":"y"}},"data":{"b":"C","d":"e"}}`},
	{name: "by another manager", given: aConfigMap, url: configMaps + "/NAME?fieldManager=other", body: `{"metadata":{"name":"NAME","labels":{"x":"y"}},"data":{"b":"C","d":"e"}}`},
	{name: "without a User-Agent", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME"},"data":{"b":"C"}}`, headers: []string{"User-Agent: "}},
	{name: "a field comes, a field goes", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","annotations":{"k":"v"}},"data":{"f":"g"},"binaryData":{"h":"AQI="}}`},
	{name: "everything goes", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME"}}`},
	{name: "everything goes, by another", given: aConfigMap, url: configMaps + "/NAME?fieldManager=other", body: `{"metadata":{"name":"NAME"}}`},
	{name: "at its version", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","resourceVersion":"$rv","uid":"$uid"},"data":{"b":"C"}}`},
	{name: "at another version", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","resourceVersion":"1"},"data":{"b":"C"}}`},
	{name: "at a version that is none", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","resourceVersion":"x"},"data":{"b":"C"}}`},
	{name: "version zero", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","resourceVersion":"0"},"data":{"b":"C"}}`},
	{name: "with another uid", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","uid":"other"},"data":{"b":"C"}}`},
	{name: "nothing new", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","labels":{"x":"y"}},"data":{"b":"c","d":"e"}}`},
	{name: "nothing new, of old", given: anOldConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","labels":{"x":"y"}},"data":{"b":"c","d":"e"}}`},
	{name: "nothing new, of old, by another", given: anOldConfigMap, url: configMaps + "/NAME?fieldManager=third", body: `{"metadata":{"name":"NAME","labels":{"x":"y"}},"data":{"b":"c","d":"e"}}`},
	{name: "a value of one's own, of old", given: anOldConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","labels":{"x":"y"}},"data":{"b":"C","d":"e"}}`},
	{name: "a value of an applier", given: anOldConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","labels":{"x":"y"}},"data":{"b":"c","d":"E"}}`},
	{name: "all of an applier", given: anOldConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","labels":{"x":"z"}},"data":{"b":"c","d":"E"}}`},
	{name: "a field of an applier goes", given: anOldConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","labels":{"x":"y"}},"data":{"b":"c"}}`},
	{name: "a value and a field of another go", given: anOldConfigMap, url: configMaps + "/NAME?fieldManager=third", body: `{"metadata":{"name":"NAME","labels":{"x":"y"}},"data":{"b":"C","z":"1"}}`},
	{name: "owners sent as they are", given: aConfigMap, url: configMaps + "/NAME?fieldManager=other", body: `{"metadata":{"name":"NAME","labels":{"x":"y"},"managedFields":[{"manager":"tester","operation":"Update","apiVersion":"v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:b":{},"f:d":{}},"f:metadata":{"f:labels":{".":{},"f:x":{}}}}}]},"data":{"b":"C","d":"e"}}`},
	{name: "owners sent, in another order", given: aConfigMap, url: configMaps + "/NAME?fieldManager=other", body: `{"metadata":{"name":"NAME","managedFields":[
		{"manager":"z","operation":"Update","apiVersion":"v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:d":{}}}},
		{"manager":"a","operation":"Apply","apiVersion":"v1","time":"2021-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:b":{}}}},
		{"manager":"b","operation":"Update","apiVersion":"v1","time":"2019-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:b":{}}}}]},"data":{"b":"c","d":"e","f":"g"}}`},
	{name: "owner sent twice", given: aConfigMap, url: configMaps + "/NAME?fieldManager=other", body: `{"metadata":{"name":"NAME","managedFields":[
		{"manager":"z","operation":"Update","apiVersion":"v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:d":{}}}},
		{"manager":"z","operation":"Update","apiVersion":"v1","time":"2021-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:b":{}}}}]},"data":{"b":"c","d":"e","f":"g"}}`},
	{name: "owner through a subresource", given: aConfigMap, url: configMaps + "/NAME?fieldManager=z", body: `{"metadata":{"name":"NAME","managedFields":[
		{"manager":"z","operation":"Update","apiVersion":"v1","subresource":"status","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:d":{}}}}]},"data":{"b":"C","d":"e"}}`},
	{name: "owner of another version", given: aConfigMap, url: configMaps + "/NAME?fieldManager=other", body: `{"metadata":{"name":"NAME","managedFields":[{"manager":"x","operation":"Update","apiVersion":"v0","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:b":{}}}}]},"data":{"b":"C"}}`},
	{name: "owner without a time, and without fields", given: aConfigMap, url: configMaps + "/NAME?fieldManager=other", body: `{"metadata":{"name":"NAME","managedFields":[{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1"},{"manager":"y","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:d":{}}}}]},"data":{"b":"C","d":"e"}}`},
	{name: "owners that make no sense", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","managedFields":[{"manager":"x","operation":"Take","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]},"data":{"b":"C"}}`},
	{name: "owners whose fields make no sense", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","managedFields":[{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"data":{}}}]},"data":{"b":"C"}}`},
	{name: "owners of no fields type", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","managedFields":[{"manager":"x","operation":"Update","apiVersion":"v1","fieldsV1":{"f:data":{}}}]},"data":{"b":"C"}}`},
	{name: "owners forgotten", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","managedFields":[]},"data":{"b":"C"}}`},
	{name: "owners forgotten by an empty one", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","managedFields":[{}]},"data":{"b":"C"}}`},
	{name: "of fields without a manager", given: anUnownedConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME"},"data":{"b":"C"}}`},
	{name: "eight managers", given: manyManagers(8), url: configMaps + "/NAME?fieldManager=last", body: `{"metadata":{"name":"NAME"},"data":{"k0":"0","k1":"1","k2":"2","k3":"x","k4":"4","k5":"5","k6":"6","k7":"7","k8":"8","k9":"9","k10":"10","k11":"11","b":"C"}}`},
	{name: "nine managers", given: manyManagers(9), url: configMaps + "/NAME?fieldManager=last", body: `{"metadata":{"name":"NAME"},"data":{"k0":"0","k1":"1","k2":"2","k3":"x","k4":"4","k5":"5","k6":"6","k7":"7","k8":"8","k9":"9","k10":"10","k11":"11","b":"C"}}`},
	{name: "ten managers", given: manyManagers(10), url: configMaps + "/NAME?fieldManager=last", body: `{"metadata":{"name":"NAME"},"data":{"k0":"0","k1":"1","k2":"2","k3":"x","k4":"4","k5":"5","k6":"6","k7":"7","k8":"8","k9":"9","k10":"10","k11":"11","b":"C"}}`},
	{name: "twelve managers", given: manyManagers(12), url: configMaps + "/NAME?fieldManager=last", body: `{"metadata":{"name":"NAME"},"data":{"k0":"0","k1":"1","k2":"2","k3":"x","k4":"4","k5":"5","k6":"6","k7":"7","k8":"8","k9":"9","k10":"10","k11":"11","b":"C"}}`},
	{name: "finalizer added", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","finalizers":["a.example/x"]}}`},
	{name: "finalizer added to what leaves", given: aLeavingConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","finalizers":["a.example/x","a.example/z"]}}`},
	{name: "one finalizer gone", given: aLeavingConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","finalizers":["a.example/x"]},"data":{"b":"c"}}`},
	{name: "last finalizer gone", given: aLeavingConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME"},"data":{"b":"c"}}`},
	{name: "deletion time is not the client's", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","deletionTimestamp":"2001-01-01T00:00:00Z"}}`},
	{name: "system fields", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","creationTimestamp":"2001-01-01T00:00:00Z","selfLink":"x","generation":7}}`},
	{name: "owners alike", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"},{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"}]}}`, library: true},
	{name: "owner", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"}]}}`},
	{name: "invalid label", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","labels":{"-":"-"}}}`},
	{name: "immutable", given: []request{post(configMaps, `{"metadata":{"name":"NAME"},"immutable":true,"data":{"b":"c"}}`)}, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME"},"data":{"b":"C"}}`},
	{name: "is not there", url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME"}}`},
	{name: "is not there, with a uid", url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","uid":"u"}}`},
	{name: "namespace is not there", url: "/api/v1/namespaces/nowhere/configmaps/NAME", body: `{"metadata":{"name":"NAME"}}`},
	{name: "another name", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"other"}}`, library: true},
	{name: "no name", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{}}`, library: true},
	{name: "another namespace", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME","namespace":"other"}}`, library: true},
	{name: "no namespace in the path", given: aConfigMap, url: "/api/v1/configmaps/NAME", body: `{"metadata":{"name":"NAME","namespace":"shop"}}`},
	{name: "the collection", url: configMaps, body: `{"metadata":{"name":"NAME"}}`},
	{name: "unknown field, warned of", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME"},"dta":{}}`, library: true},
	{name: "unknown field, strict", given: aConfigMap, url: configMaps + "/NAME?fieldValidation=Strict", body: `{"metadata":{"name":"NAME"},"dta":{}}`, library: true},
	{name: "unknown field, ignored", given: aConfigMap, url: configMaps + "/NAME?fieldValidation=Ignore", body: `{"metadata":{"name":"NAME"},"dta":{}}`},
	{name: "bad fieldValidation", given: aConfigMap, url: configMaps + "/NAME?fieldValidation=Maybe", body: `{"metadata":{"name":"NAME"}}`, library: true},
	{name: "duplicate field", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME"},"data":{"a":"1","a":"2"}}`, library: true},
	{name: "dry run", given: aConfigMap, url: configMaps + "/NAME?dryRun=All", body: `{"metadata":{"name":"NAME"},"data":{"b":"C"}}`, library: true},
	{name: "bad dry run", given: aConfigMap, url: configMaps + "/NAME?dryRun=Some", body: `{"metadata":{"name":"NAME"},"data":{"b":"C"}}`, library: true},
	{name: "another kind", given: aConfigMap, url: configMaps + "/NAME", body: `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"NAME"}}`, library: true},
	{name: "another version", given: aConfigMap, url: configMaps + "/NAME", body: `{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"NAME"}}`, library: true},
	{name: "broken JSON", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":`, library: true},
	{name: "no body", given: aConfigMap, url: configMaps + "/NAME", body: ``, library: true},
	{name: "null", given: aConfigMap, url: configMaps + "/NAME", body: `null`, library: true},
	{name: "wrong type", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME"},"data":[]}`, library: true},
	{name: "as a Table", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"NAME"},"data":{"b":"C"}}`, headers: []string{"Accept: application/json;as=Table;v=v1;g=meta.k8s.io"}, library: true},
	{name: "pretty", given: aConfigMap, url: configMaps + "/NAME?pretty=true", body: `{"metadata":{"name":"NAME"},"data":{"b":"C"}}`, library: true},
	{name: "spec, defaults and generation", given: aDeployment, url: deployments + "/NAME", body: `{"metadata":{"name":"NAME"},"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"j"},{"name":"d","image":"i","env":[{"name":"A","value":"b"}]}]}}}}`},
	{name: "status is kept", given: aDeployment, url: deployments + "/NAME", body: `{"metadata":{"name":"NAME"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}]}]}}},"status":{"replicas":9}}`},
	{name: "selector is immutable", given: aDeployment, url: deployments + "/NAME", body: `{"metadata":{"name":"NAME"},"spec":{"selector":{"matchLabels":{"app":"db"}},"template":{"metadata":{"labels":{"app":"db"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
	{name: "pod's image", given: aPod, url: pods + "/NAME", body: `{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"c","image":"j"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler","enableServiceLinks":true}}`},
	{name: "pod's spec", given: aPod, url: pods + "/NAME", body: `{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"d","image":"i"}]}}`},
	{name: "creates a lease", url: leases + "/NAME", body: `{"metadata":{"name":"NAME"},"spec":{"holderIdentity":"me"}}`},
	{name: "creates a lease, with a uid", url: leases + "/NAME", body: `{"metadata":{"name":"NAME","uid":"u"},"spec":{"holderIdentity":"me"}}`},
	{name: "creates a lease, with a version", url: leases + "/NAME", body: `{"metadata":{"name":"NAME","resourceVersion":"7"},"spec":{"holderIdentity":"me"}}`},
	{name: "lease needs a version", given: aLease, url: leases + "/NAME", body: `{"metadata":{"name":"NAME"},"spec":{"holderIdentity":"you"}}`},
	{name: "lease at its version", given: aLease, url: leases + "/NAME", body: `{"metadata":{"name":"NAME","resourceVersion":"$rv"},"spec":{"holderIdentity":"you","renewTime":"2024-01-02T03:04:05.678901Z"}}`},
	{name: "cluster-scoped", given: aNamespace, url: "/api/v1/namespaces/NAME", body: `{"metadata":{"name":"NAME","labels":{"a":"b"}}}`},
	{name: "custom", given: aWidget, url: widgets + "/NAME", body: `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"NAME","resourceVersion":"$rv"},"spec":{"replicas":3,"parts":["a","c"]},"status":{"replicas":7}}`},
	{name: "custom, nothing new", given: aWidget, url: widgets + "/NAME", body: `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"NAME","resourceVersion":"$rv"},"spec":{"replicas":2,"parts":["a","b"]}}`},
	{name: "custom, needs a version", given: aWidget, url: widgets + "/NAME", body: `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"replicas":3}}`},
	{name: "custom, invalid", given: aWidget, url: widgets + "/NAME", body: `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"NAME","resourceVersion":"$rv"},"spec":{"replicas":-1}}`},
	{name: "custom, unknown field", given: aWidget, url: widgets + "/NAME", body: `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"NAME","resourceVersion":"$rv"},"spec":{"size":1}}`, library: true},
	{name: "definition", given: []request{post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"NAMEs.example.dev"},"spec":{"group":"example.dev","names":{"plural":"NAMEs","kind":"NAME"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)},
		url: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/NAMEs.example.dev", body: `{"metadata":{"name":"NAMEs.example.dev","resourceVersion":"1"},"spec":{}}`},
}

// manyManagers is a ConfigMap that n managers have written to, long ago.
func manyManagers(n int) []request {
	var data, owners []string
	for i := range n {
		data = append(data, fmt.Sprintf(`"k%d":"%d"`, i, i))
		owners = append(owners, fmt.Sprintf(`{"manager":"m%d","operation":"Update","apiVersion":"v1","time":"20%02d-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k%d":{}}}}`, i, i, i))
	}
	body := fmt.Sprintf(`{"metadata":{"name":"NAME","managedFields":[%s]},"data":{%s,"b":"c"}}`, strings.Join(owners, ","), strings.Join(data, ","))
	return append(aConfigMap[:1:1], request{"PUT", configMaps + "/NAME", body})
}

var patchRows = []row{
	{name: "a value", given: aConfigMap, url: configMaps + "/NAME", body: `{"data":{"b":"C"}}`},
	{name: "by another manager", given: aConfigMap, url: configMaps + "/NAME?fieldManager=other", body: `{"data":{"b":"C","z":"1"}}`},
	{name: "of old", given: anOldConfigMap, url: configMaps + "/NAME", body: `{"data":{"b":"C","d":null}}`},
	{name: "a field goes", given: aConfigMap, url: configMaps + "/NAME", body: `{"data":{"b":null}}`},
	{name: "all fields go", given: aConfigMap, url: configMaps + "/NAME", body: `{"data":null,"metadata":{"labels":null}}`},
	{name: "nothing new", given: aConfigMap, url: configMaps + "/NAME", body: `{"data":{"b":"c"}}`},
	{name: "nothing new, of old", given: anOldConfigMap, url: configMaps + "/NAME", body: `{"data":{"b":"c"}}`},
	{name: "nothing", given: aConfigMap, url: configMaps + "/NAME", body: `{}`},
	{name: "label and annotation", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"labels":{"x":null,"y":"z"},"annotations":{"k":"<&>"}}}`},
	{name: "at its version", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"resourceVersion":"$rv","uid":"$uid"},"data":{"b":"C"}}`},
	{name: "at another version", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"resourceVersion":"1"},"data":{"b":"C"}}`},
	{name: "version taken out", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"resourceVersion":null},"data":{"b":"C"}}`},
	{name: "with another uid", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"uid":"other"}}`},
	{name: "uid taken out", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"uid":null},"data":{"b":"C"}}`},
	{name: "another name", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":"other"}}`, library: true},
	{name: "name taken out", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"name":null}}`, library: true},
	{name: "another namespace", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"namespace":"other"}}`, library: true},
	{name: "metadata taken out", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":null}`, library: true},
	{name: "another kind", given: aConfigMap, url: configMaps + "/NAME", body: `{"kind":"Secret"}`, library: true},
	{name: "kind taken out", given: aConfigMap, url: configMaps + "/NAME", body: `{"kind":null,"apiVersion":null,"data":{"b":"C"}}`},
	{name: "owners forgotten", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"managedFields":[{}]}}`},
	{name: "owners taken out", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"managedFields":null}}`},
	{name: "is not there", url: configMaps + "/NAME", body: `{"data":{"b":"C"}}`},
	{name: "lease is not there", url: leases + "/NAME", body: `{"spec":{"holderIdentity":"you"}}`, library: true},
	{name: "lease", given: aLease, url: leases + "/NAME", body: `{"spec":{"holderIdentity":"you"}}`},
	{name: "one finalizer gone", given: aLeavingConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"finalizers":["a.example/x"]}}`},
	{name: "last finalizer gone", given: aLeavingConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"finalizers":null}}`},
	{name: "finalizer added to what leaves", given: aLeavingConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"finalizers":["a.example/z"]}}`},
	{name: "owners alike", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"},{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"}]}}`, library: true},
	{name: "invalid label", given: aConfigMap, url: configMaps + "/NAME", body: `{"metadata":{"labels":{"-":"-"}}}`},
	{name: "unknown field, warned of", given: aConfigMap, url: configMaps + "/NAME", body: `{"dta":{}}`, library: true},
	{name: "unknown field, strict", given: aConfigMap, url: configMaps + "/NAME?fieldValidation=Strict", body: `{"dta":{}}`, library: true},
	{name: "unknown field, ignored", given: aConfigMap, url: configMaps + "/NAME?fieldValidation=Ignore", body: `{"dta":{}}`, library: true},
	{name: "duplicate field", given: aConfigMap, url: configMaps + "/NAME", body: `{"data":{"b":"1","b":"2"}}`, library: true},
	{name: "wrong type", given: aConfigMap, url: configMaps + "/NAME", body: `{"data":[]}`, library: true},
	{name: "broken JSON", given: aConfigMap, url: configMaps + "/NAME", body: `{"data":`, library: true},
	{name: "no body", given: aConfigMap, url: configMaps + "/NAME", library: true},
	{name: "null", given: aConfigMap, url: configMaps + "/NAME", body: `null`, library: true},
	{name: "a list", given: aConfigMap, url: configMaps + "/NAME", body: `[]`, library: true},
	{name: "dry run", given: aConfigMap, url: configMaps + "/NAME?dryRun=All", body: `{"data":{"b":"C"}}`, library: true},
	{name: "force", given: aConfigMap, url: configMaps + "/NAME?force=true", body: `{"data":{"b":"C"}}`, library: true},
	{name: "strategic", given: aConfigMap, url: configMaps + "/NAME", body: `{"data":{"b":"C"}}`, headers: []string{"Content-Type: application/strategic-merge-patch+json"}, library: true},
	{name: "operations", given: aConfigMap, url: configMaps + "/NAME", body: `[{"op":"remove","path":"/data/b"}]`, headers: []string{"Content-Type: application/json-patch+json"}, library: true},
	{name: "plain JSON", given: aConfigMap, url: configMaps + "/NAME", body: `{"data":{"b":"C"}}`, headers: []string{"Content-Type: application/json"}},
	{name: "spec, defaults and generation", given: aDeployment, url: deployments + "/NAME", body: `{"spec":{"replicas":3,"strategy":null}}`},
	{name: "a list as a whole", given: aDeployment, url: deployments + "/NAME", body: `{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"j"}]}}}}`},
	{name: "status is kept", given: aDeployment, url: deployments + "/NAME", body: `{"status":{"replicas":9}}`},
	{name: "selector is immutable", given: aDeployment, url: deployments + "/NAME", body: `{"spec":{"selector":{"matchLabels":{"app":"db"}}}}`},
	{name: "cluster-scoped", given: aNamespace, url: "/api/v1/namespaces/NAME", body: `{"metadata":{"labels":{"a":"b"}}}`},
	{name: "custom", given: aWidget, url: widgets + "/NAME", body: `{"spec":{"replicas":3,"parts":null},"status":{"replicas":4}}`},
	{name: "custom, nothing new", given: aWidget, url: widgets + "/NAME", body: `{"spec":{"replicas":2}}`},
	{name: "custom, invalid", given: aWidget, url: widgets + "/NAME", body: `{"spec":{"replicas":-3}}`},
	{name: "custom, unknown field", given: aWidget, url: widgets + "/NAME", body: `{"spec":{"size":3}}`, library: true},
}

var deleteRows = []row{
	{name: "plain", given: aConfigMap, url: configMaps + "/NAME"},
	{name: "is not there", url: configMaps + "/NAME"},
	{name: "namespace is not there", url: "/api/v1/namespaces/nowhere/configmaps/NAME"},
	{name: "no namespace in the path", given: aConfigMap, url: "/api/v1/configmaps/NAME"},
	{name: "options", given: aConfigMap, url: configMaps + "/NAME", body: `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"propagationPolicy":"Background"}`},
	{name: "options without kind", given: aConfigMap, url: configMaps + "/NAME", body: `{"propagationPolicy":"Background"}`},
	{name: "options of a group", given: aDeployment, url: deployments + "/NAME", body: `{"kind":"DeleteOptions","apiVersion":"apps/v1"}`},
	{name: "options of the meta group", given: aConfigMap, url: configMaps + "/NAME", body: `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1"}`},
	{name: "options in the query", given: aConfigMap, url: configMaps + "/NAME?gracePeriodSeconds=0&propagationPolicy=Orphan"},
	{name: "body wins over the query", given: aConfigMap, url: configMaps + "/NAME?propagationPolicy=Orphan", body: `{"propagationPolicy":"Background"}`},
	{name: "unknown in the query", given: aConfigMap, url: configMaps + "/NAME?foo=bar"},
	{name: "bad grace in the query", given: aConfigMap, url: configMaps + "/NAME?gracePeriodSeconds=soon", library: true},
	{name: "unknown policy", given: aConfigMap, url: configMaps + "/NAME", body: `{"propagationPolicy":"Sideways"}`, library: true},
	{name: "two policies", given: aConfigMap, url: configMaps + "/NAME", body: `{"propagationPolicy":"Orphan","orphanDependents":true}`, library: true},
	{name: "bad dry run", given: aConfigMap, url: configMaps + "/NAME", body: `{"dryRun":["Some"]}`, library: true},
	{name: "unsafe", given: aConfigMap, url: configMaps + "/NAME", body: `{"ignoreStoreReadErrorWithClusterBreakingPotential":true}`, library: true},
	{name: "another kind of options", given: aConfigMap, url: configMaps + "/NAME", body: `{"kind":"ListOptions","apiVersion":"v1"}`, library: true},
	{name: "unknown kind of options", given: aConfigMap, url: configMaps + "/NAME", body: `{"kind":"Pod","apiVersion":"v1"}`, library: true},
	{name: "unknown field in options", given: aConfigMap, url: configMaps + "/NAME", body: `{"foo":1}`},
	{name: "broken options", given: aConfigMap, url: configMaps + "/NAME", body: `{"grace`, library: true},
	{name: "wrong type in options", given: aConfigMap, url: configMaps + "/NAME", body: `{"gracePeriodSeconds":"soon"}`, library: true},
	{name: "options as YAML", given: aConfigMap, url: configMaps + "/NAME", body: "propagationPolicy: Background\n", headers: []string{"Content-Type: application/yaml"}, library: true},
	{name: "options as text", given: aConfigMap, url: configMaps + "/NAME", body: "{}", headers: []string{"Content-Type: text/plain"}},
	{name: "dry run", given: aConfigMap, url: configMaps + "/NAME", body: `{"dryRun":["All"]}`},
	{name: "dry run in the query", given: aConfigMap, url: configMaps + "/NAME?dryRun=All"},
	{name: "dry run of a pod", given: aBoundPod, url: pods + "/NAME?dryRun=All"},
	{name: "uid holds", given: aConfigMap, url: configMaps + "/NAME", body: `{"preconditions":{"uid":"$uid"}}`},
	{name: "another uid", given: aConfigMap, url: configMaps + "/NAME", body: `{"preconditions":{"uid":"other"}}`},
	{name: "version holds", given: aConfigMap, url: configMaps + "/NAME", body: `{"preconditions":{"resourceVersion":"$rv"}}`},
	{name: "another version", given: aConfigMap, url: configMaps + "/NAME", body: `{"preconditions":{"resourceVersion":"1"}}`},
	{name: "finalizers", given: aHeldConfigMap, url: configMaps + "/NAME"},
	{name: "finalizers, again", given: aLeavingConfigMap, url: configMaps + "/NAME"},
	{name: "finalizers, in the old words", given: aHeldConfigMap, url: configMaps + "/NAME", body: `{"orphanDependents":false}`},
	{name: "finalizers, orphaning in the old words", given: aHeldConfigMap, url: configMaps + "/NAME", body: `{"orphanDependents":true}`},
	{name: "foreground", given: aDeployment, url: deployments + "/NAME", body: `{"propagationPolicy":"Foreground"}`},
	{name: "orphan", given: aDeployment, url: deployments + "/NAME?propagationPolicy=Orphan"},
	{name: "pod with no node", given: aPod, url: pods + "/NAME"},
	{name: "pod with a node", given: aBoundPod, url: pods + "/NAME"},
	{name: "pod with a node, shorter", given: append(aBoundPod[:1:1], request{"DELETE", pods + "/NAME", ""}), url: pods + "/NAME?gracePeriodSeconds=3"},
	{name: "pod with a node, at once", given: append(aBoundPod[:1:1], request{"DELETE", pods + "/NAME", ""}), url: pods + "/NAME?gracePeriodSeconds=0"},
	{name: "pod, negative grace", given: aBoundPod, url: pods + "/NAME", body: `{"gracePeriodSeconds":-7}`},
	{name: "namespace", given: aNamespace, url: "/api/v1/namespaces/NAME"},
	{name: "job without a policy", given: []request{post("/apis/batch/v1/namespaces/shop/jobs", `{"metadata":{"name":"NAME"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`)}, url: "/apis/batch/v1/namespaces/shop/jobs/NAME"},
	{name: "custom", given: aWidget, url: widgets + "/NAME"},
	{name: "custom, options of its group", given: aWidget, url: widgets + "/NAME", body: `{"kind":"DeleteOptions","apiVersion":"test.dev/v1"}`},
	{name: "custom, foreground", given: aWidget, url: widgets + "/NAME", body: `{"propagationPolicy":"Foreground"}`},
	{name: "as a Table", given: aConfigMap, url: configMaps + "/NAME", headers: []string{"Accept: application/json;as=Table;v=v1;g=meta.k8s.io"}, library: true},
	{name: "something behind the name", given: aConfigMap, url: configMaps + "/NAME//x"},
}
