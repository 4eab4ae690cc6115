package wire_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// bad is one request that the server must refuse.
type bad struct {
	name         string
	method, path string
	body         string
	contentType  string
	accept       string
	code         int
	reason       string // of the Status; empty if the answer need not be a Status
	message      string // part of its message
}

// gadgets is a custom kind with a strict schema. Of each kind there is an object "victim",
// at which the bad requests aim and which they must not change.
const gadgets = "/apis/test.exeunt.dev/v1/namespaces/default/gadgets"

const gadgetCRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.test.exeunt.dev"},
"spec":{"group":"test.exeunt.dev","scope":"Namespaced","names":{"plural":"gadgets","kind":"Gadget"},"versions":[{"name":"v1","served":true,"storage":true,
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer","minimum":1}}}}}}}]}}`

func annotated(size int) string {
	return configMap("n", fmt.Sprintf(`"annotations":{"big":%q}`, strings.Repeat("x", size)))
}

func token(text string) string {
	return url.QueryEscape(base64.RawURLEncoding.EncodeToString([]byte(text)))
}

// badBodies are requests whose body does not fit the path.
func badBodies() []bad {
	post := func(name, body string, code int, reason, message string) bad {
		return bad{name: name, method: "POST", path: configMaps, body: body, code: code, reason: reason, message: message}
	}
	typed := func(b bad, contentType string) bad { b.contentType = contentType; return b }
	return []bad{
		post("JSON cut short", `{"apiVersion":"v1","kind":"ConfigMap","metadata":`, 400, "BadRequest", ""),
		post("no JSON at all", `hello`, 400, "BadRequest", ""),
		post("a JSON array", `[]`, 400, "BadRequest", ""),
		post("a JSON string", `"x"`, 400, "BadRequest", ""),
		post("a number for a map", `{"metadata":{"name":"n"},"data":7}`, 400, "BadRequest", ""),
		post("a list for metadata", `{"metadata":[]}`, 400, "BadRequest", ""),
		post("a bad time", configMap("n", `"creationTimestamp":"yesterday"`), 400, "BadRequest", ""),
		post("another kind", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"n"}}`, 400, "BadRequest", ""),
		post("another group", `{"apiVersion":"apps/v1","kind":"ConfigMap","metadata":{"name":"n"}}`, 400, "BadRequest", ""),
		post("an unknown kind", `{"apiVersion":"v1","kind":"Unicorn","metadata":{"name":"n"}}`, 400, "BadRequest", ""),
		post("nested too deep", strings.Repeat(`{"a":`, 20000)+`1`+strings.Repeat(`}`, 20000), 400, "BadRequest", ""),
		post("arrays nested too deep", `{"metadata":`+strings.Repeat(`[`, 200000), 400, "BadRequest", ""),
		post("more than 3 MiB", configMap("n", `"labels":{"a":"`+strings.Repeat("x", 3<<20)+`"}`), 413, "RequestEntityTooLarge", ""),
		post("nested deeper than any object", nested(`{"a":`, "}", 9000), 400, "BadRequest", "nested too deeply"),
		typed(post("deep YAML", "a: "+nested("[", "]", 5000), 400, "BadRequest", "nested too deeply"), "application/yaml"),
		typed(post("deep YAML in blocks", strings.Repeat("- ", 5000)+"x", 400, "BadRequest", "nested too deeply"), "application/yaml"),
		typed(post("YAML whose text grows", "a: &a "+strings.Repeat("x", 10<<10)+"\nb: ["+strings.Repeat("*a,", 10000)+"]", 413, "RequestEntityTooLarge", "aliases"), "application/yaml"),
		typed(post("deep protobuf", deepProtobuf(3000), 400, "BadRequest", "nested too deeply"), "application/vnd.kubernetes.protobuf"),
		{name: "a deep custom object", method: "POST", path: gadgets, body: `{"apiVersion":"test.exeunt.dev/v1","kind":"Gadget","metadata":{"name":"n"},"x":` + nested(`[`, `]`, 9000) + `}`, code: 400, reason: "BadRequest", message: "nested too deeply"},
		typed(post("YAML cut short", "metadata: [", 400, "BadRequest", ""), "application/yaml"),
		typed(post("YAML that grows", yamlBomb(), 400, "BadRequest", ""), "application/yaml"),
		typed(post("protobuf without its magic", "\x00\x01\x02", 400, "BadRequest", ""), "application/vnd.kubernetes.protobuf"),
		typed(post("protobuf that is none", "k8s\x00\xff\xff\xff\xff\xff\xff", 400, "BadRequest", ""), "application/vnd.kubernetes.protobuf"),
		typed(post("protobuf cut short", "k8s\x00\x0a\x0f\x0a\x02v1\x12\x09Config", 400, "BadRequest", ""), "application/vnd.kubernetes.protobuf"),
		typed(post("a media type of its own", configMap("n", ""), 415, "UnsupportedMediaType", ""), "text/plain"),
		typed(post("no media type", configMap("n", ""), 415, "UnsupportedMediaType", ""), ";;;"),
		{name: "an unsupported Accept", method: "GET", path: configMaps, accept: "application/toml", code: 406, reason: "NotAcceptable"},
		{name: "an unknown field, strictly", method: "POST", path: configMaps + "?fieldValidation=Strict", body: `{"metadata":{"name":"n"},"dta":{}}`, code: 400, reason: "BadRequest", message: `unknown field "dta"`},
		{name: "a field twice, strictly", method: "POST", path: configMaps + "?fieldValidation=Strict", body: `{"metadata":{"name":"n"},"data":{"a":"1","a":"2"}}`, code: 400, reason: "BadRequest", message: `duplicate field "data.a"`},
		{name: "an unknown validation", method: "POST", path: configMaps + "?fieldValidation=Sometimes", body: configMap("n", ""), code: 422, reason: "Invalid"},
		{name: "a number too large", method: "POST", path: deployments, body: `{"metadata":{"name":"n"},"spec":{"replicas":1e100}}`, code: 400, reason: "BadRequest"},
		{name: "a number as text", method: "POST", path: deployments, body: `{"metadata":{"name":"n"},"spec":{"replicas":"3"}}`, code: 400, reason: "BadRequest"},
		{name: "a CRD's field out of range", method: "POST", path: gadgets, body: `{"apiVersion":"test.exeunt.dev/v1","kind":"Gadget","metadata":{"name":"n"},"spec":{"size":0}}`, code: 422, reason: "Invalid", message: "spec.size"},
		{name: "a CRD's field of another type", method: "POST", path: gadgets, body: `{"apiVersion":"test.exeunt.dev/v1","kind":"Gadget","metadata":{"name":"n"},"spec":{"size":"big"}}`, code: 422, reason: "Invalid", message: "spec.size"},
		{name: "a CRD's object without kind", method: "POST", path: gadgets, body: `{"metadata":{"name":"n"}}`, code: 400, reason: "BadRequest"},
		{name: "protobuf for a custom kind", method: "POST", path: gadgets, body: "k8s\x00", contentType: "application/vnd.kubernetes.protobuf", code: 415, reason: "UnsupportedMediaType"},
	}
}

// badObjects are well-formed objects that break a rule.
func badObjects() []bad {
	post := func(name, body string, code int, reason, message string) bad {
		return bad{name: name, method: "POST", path: configMaps, body: body, code: code, reason: reason, message: message}
	}
	return []bad{
		post("no name", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`, 422, "Invalid", "name or generateName is required"),
		post("a name with capitals", configMap("Bad_Name", ""), 422, "Invalid", "metadata.name"),
		post("a name with a slash", configMap("a/b", ""), 422, "Invalid", "metadata.name"),
		post("a name that is too long", configMap(strings.Repeat("a", 254), ""), 422, "Invalid", "metadata.name"),
		post("a name with NUL", `{"metadata":{"name":"a\u0000b"}}`, 422, "Invalid", "metadata.name"),
		post("a bad label key", configMap("n", `"labels":{"-x-":"y"}`), 422, "Invalid", "metadata.labels"),
		post("a bad label value", configMap("n", `"labels":{"x":"no spaces"}`), 422, "Invalid", "metadata.labels"),
		post("a bad annotation key", configMap("n", `"annotations":{"a b":"c"}`), 422, "Invalid", "metadata.annotations"),
		post("annotations that are too long", annotated(300<<10), 422, "Invalid", "metadata.annotations"),
		post("a bad finalizer", configMap("n", `"finalizers":["no good"]`), 422, "Invalid", "metadata.finalizers"),
		post("a finalizer without a domain", configMap("n", `"finalizers":["mine"]`), 422, "Invalid", "metadata.finalizers[0]"),
		post("an owner without uid", configMap("n", `"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p"}]`), 422, "Invalid", "metadata.ownerReferences"),
		post("an Event as owner", configMap("n", `"ownerReferences":[{"apiVersion":"v1","kind":"Event","name":"e","uid":"1"}]`), 422, "Invalid", "metadata.ownerReferences"),
		post("two controllers", configMap("n", `"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"1","controller":true},{"apiVersion":"v1","kind":"Pod","name":"q","uid":"2","controller":true}]`), 422, "Invalid", "metadata.ownerReferences"),
		post("another namespace", configMap("n", `"namespace":"other"`), 400, "BadRequest", "does not match the namespace"),
		post("a version on create", configMap("n", `"resourceVersion":"5"`), 500, "", "resourceVersion should not be set"),
		post("a bad key", `{"metadata":{"name":"n"},"data":{"a b":"c"}}`, 422, "Invalid", "data"),
		{name: "a namespace that is not there", method: "POST", path: namespaces + "/nowhere/configmaps", body: configMap("n", ""), code: 404, reason: "NotFound", message: `namespaces "nowhere" not found`},
		{name: "a pod without containers", method: "POST", path: pods, body: `{"metadata":{"name":"n"},"spec":{}}`, code: 422, reason: "Invalid", message: "spec.containers"},
		{name: "fewer than no replicas", method: "POST", path: deployments, body: `{"metadata":{"name":"n"},"spec":{"replicas":-1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, code: 422, reason: "Invalid", message: "spec.replicas"},
		{name: "a selector for others", method: "POST", path: deployments, body: `{"metadata":{"name":"n"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"c":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, code: 422, reason: "Invalid", message: "spec.template.metadata.labels"},
		{name: "a CRD of a broken schema", method: "POST", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: strings.ReplaceAll(strings.Replace(gadgetCRD, `"type":"integer"`, `"type":"colour"`, 1), "gadgets", "gizmos"), code: 422, reason: "Invalid"},
		{name: "a CRD of the wrong name", method: "POST", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: strings.Replace(gadgetCRD, "gadgets.test", "widgets.test", 1), code: 422, reason: "Invalid", message: "metadata.name"},
		{name: "PUT under another name", method: "PUT", path: configMaps + "/victim", body: configMap("other", ""), code: 400, reason: "BadRequest"},
		{name: "PUT nothing there", method: "PUT", path: configMaps + "/missing", body: configMap("missing", ""), code: 404, reason: "NotFound"},
		{name: "PUT of an old version", method: "PUT", path: configMaps + "/victim", body: configMap("victim", `"resourceVersion":"1"`), code: 409, reason: "Conflict"},
		{name: "a manager with a very long name", method: "POST", path: configMaps + "?fieldManager=" + strings.Repeat("m", 200), body: configMap("n", ""), code: 422, reason: "Invalid"},
		{name: "a dry run of some kind", method: "POST", path: configMaps + "?dryRun=Some", body: configMap("n", ""), code: 422, reason: "Invalid"},
	}
}

// badPatches aim at "victim".
func badPatches() []bad {
	patch := func(name, contentType, body string, code int, reason string) bad {
		return bad{name: name, method: "PATCH", path: configMaps + "/victim", contentType: contentType, body: body, code: code, reason: reason}
	}
	return []bad{
		patch("an unknown type", "application/x-patch", `{}`, 415, "UnsupportedMediaType"),
		patch("plain JSON", "application/json", `{}`, 415, "UnsupportedMediaType"),
		patch("a merge patch that is no object", mergePatch, `7`, 400, "BadRequest"),
		patch("a merge patch cut short", mergePatch, `{"data":`, 400, "BadRequest"),
		patch("a JSON patch that is an object", jsonPatch, `{"op":"add"}`, 400, "BadRequest"),
		patch("a JSON patch to nowhere", jsonPatch, `[{"op":"replace","path":"/no/such/place","value":1}]`, 422, "Invalid"),
		patch("a JSON patch whose test fails", jsonPatch, `[{"op":"test","path":"/data/k","value":"other"}]`, 422, "Invalid"),
		patch("a JSON patch of an unknown operation", jsonPatch, `[{"op":"explode","path":"/data"}]`, 422, "Invalid"),
		patch("a JSON patch of very many operations", jsonPatch, "["+strings.Repeat(`{"op":"add","path":"/data/a","value":"b"},`, 20000)+`{"op":"add","path":"/data/a","value":"b"}]`, 413, "RequestEntityTooLarge"),
		patch("a deep merge patch", mergePatch, nested(`{"a":`, "}", 9000), 400, "BadRequest"),
		patch("a deep strategic patch", strategicPatch, nested(`{"a":`, "}", 9000), 400, "BadRequest"),
		patch("a deep JSON patch", jsonPatch, `[{"op":"add","path":"/x","value":`+nested("[", "]", 9000)+`}]`, 400, "BadRequest"),
		patch("a JSON patch of a long path", jsonPatch, `[{"op":"add","path":"`+strings.Repeat("/a", 9000)+`","value":1}]`, 400, "BadRequest"),
		patch("a JSON patch that deepens", jsonPatch, `[`+strings.Repeat(`{"op":"copy","from":"/data","path":"/data/a/b"},`, 500)+`{"op":"test","path":"/kind","value":"x"}]`, 400, "BadRequest"),
		patch("a JSON patch that copies itself", jsonPatch, copyBomb(), 422, "Invalid"),
		{name: "a deep apply", method: "PATCH", path: configMaps + "/victim?fieldManager=m", contentType: applyPatch, body: nested(`{"a":`, "}", 9000), code: 400, reason: "BadRequest"},
		{name: "a deep apply in YAML", method: "PATCH", path: configMaps + "/victim?fieldManager=m", contentType: applyPatch, body: "a: " + nested("[", "]", 5000), code: 400, reason: "BadRequest"},
		patch("a strategic patch of a wrong type", strategicPatch, `{"data":[]}`, 422, "Invalid"),
		patch("an unknown directive", strategicPatch, `{"metadata":{"$patch":"explode"}}`, 400, "BadRequest"),
		patch("apply without a manager", applyPatch, configMap("victim", ""), 422, "Invalid"),
		{name: "apply under another name", method: "PATCH", path: configMaps + "/victim?fieldManager=m", contentType: applyPatch, body: configMap("other", ""), code: 400, reason: "BadRequest"},
		{name: "apply of broken YAML", method: "PATCH", path: configMaps + "/victim?fieldManager=m", contentType: applyPatch, body: "a: [", code: 400, reason: "BadRequest"},
		{name: "apply with managedFields", method: "PATCH", path: configMaps + "/victim?fieldManager=m", contentType: applyPatch, body: configMap("victim", `"managedFields":[{"manager":"x"}]`), code: 400, reason: "BadRequest"},
		{name: "force without apply", method: "PATCH", path: configMaps + "/victim?force=true", contentType: mergePatch, body: `{}`, code: 422, reason: "Invalid"},
		patch("a label that is no label", mergePatch, `{"metadata":{"labels":{"a":"b c"}}}`, 422, "Invalid"),
		patch("another name", mergePatch, `{"metadata":{"name":"other"}}`, 400, "BadRequest"),
		patch("another uid", mergePatch, `{"metadata":{"uid":"other"}}`, 422, "Invalid"),
		patch("another version", mergePatch, `{"metadata":{"resourceVersion":"1"},"data":{"k":"changed"}}`, 409, "Conflict"),
		{name: "an unknown field, strictly", method: "PATCH", path: configMaps + "/victim?fieldValidation=Strict", contentType: mergePatch, body: `{"dta":{"a":"b"}}`, code: 422, reason: "Invalid"},
		{name: "a patch of nothing", method: "PATCH", path: configMaps + "/missing", contentType: mergePatch, body: `{"data":{"k":"v"}}`, code: 404, reason: "NotFound"},
		{name: "a strategic patch of a custom kind", method: "PATCH", path: gadgets + "/victim", contentType: strategicPatch, body: `{"spec":{"size":2}}`, code: 415, reason: "UnsupportedMediaType"},
	}
}

// badDeletes aim at "victim".
func badDeletes() []bad {
	del := func(name, body string, code int, reason string) bad {
		return bad{name: name, method: "DELETE", path: configMaps + "/victim", body: body, code: code, reason: reason}
	}
	return []bad{
		del("both ways of saying it", options(`"orphanDependents":true,"propagationPolicy":"Background"`), 422, "Invalid"),
		del("an unknown policy", options(`"propagationPolicy":"Sideways"`), 422, "Invalid"),
		del("an unknown dry run", options(`"dryRun":["Some"]`), 422, "Invalid"),
		del("another uid", options(`"preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}`), 409, "Conflict"),
		del("another version", options(`"preconditions":{"resourceVersion":"1"}`), 409, "Conflict"),
		del("options cut short", `{"kind":"DeleteOptions",`, 400, "BadRequest"),
		del("deep options", options(`"x":`+nested("[", "]", 9000)), 400, "BadRequest"),
		del("options of another kind", `{"apiVersion":"v1","kind":"ConfigMap"}`, 400, "BadRequest"),
		del("grace as text", options(`"gracePeriodSeconds":"soon"`), 400, "BadRequest"),
		del("as if it could not be read", options(`"ignoreStoreReadErrorWithClusterBreakingPotential":true`), 422, "Invalid"),
		{name: "both ways in the query", method: "DELETE", path: configMaps + "/victim?orphanDependents=true&propagationPolicy=Orphan", code: 422, reason: "Invalid"},
		{name: "grace as text in the query", method: "DELETE", path: configMaps + "/victim?gracePeriodSeconds=soon", code: 400, reason: "BadRequest"},
		// Kubernetes reads each of these paths as the collection and deletes it, although
		// the client meant a name.
		{name: "a slash for a name", method: "DELETE", path: configMaps + "/%2F", code: 404, reason: "NotFound", message: "a name in the path must not have a slash"},
		{name: "many slashes for a name", method: "DELETE", path: configMaps + "///%2f/", code: 404, reason: "NotFound"},
		{name: "nothing for a name", method: "DELETE", path: configMaps + "/", code: 404, reason: "NotFound", message: "a name in the path must not be empty"},
		{name: "a dot for a name", method: "DELETE", path: configMaps + "/%2e", code: 404, reason: "NotFound"},
		{name: "two dots for a name", method: "DELETE", path: configMaps + "/victim/%2e%2e", code: 404, reason: "NotFound"},
		{name: "NUL for a name", method: "DELETE", path: configMaps + "/%00", code: 404, reason: "NotFound"},
		{name: "a slash for a custom name", method: "DELETE", path: gadgets + "/%2F", code: 404, reason: "NotFound"},
		{name: "a collection by a broken selector", method: "DELETE", path: configMaps + "?labelSelector=" + url.QueryEscape("a in (b"), code: 400, reason: "BadRequest"},
		{name: "a collection by an unknown field", method: "DELETE", path: configMaps + "?fieldSelector=spec.colour%3Dred", code: 400, reason: "BadRequest"},
		{name: "a collection with options cut short", method: "DELETE", path: configMaps, body: `{"kind":`, code: 400, reason: "BadRequest"},
		{name: "a collection both ways", method: "DELETE", path: configMaps, body: options(`"orphanDependents":true,"propagationPolicy":"Background"`), code: 422, reason: "Invalid"},
	}
}

// badReads are reads with invalid parameters.
func badReads() []bad {
	get := func(name, path string, code int, reason string) bad {
		return bad{name: name, method: "GET", path: path, code: code, reason: reason}
	}
	list := func(name, query string, code int, reason string) bad {
		return get(name, configMaps+"?"+query, code, reason)
	}
	return []bad{
		get("an unknown resource", "/api/v1/namespaces/default/unicorns", 404, ""),
		get("an unknown group", "/apis/nope.example.com/v1/things", 404, ""),
		get("an unknown version", "/apis/apps/v9/namespaces/default/deployments", 404, ""),
		get("an unknown path", "/somewhere/else", 404, ""),
		get("an unknown subresource", configMaps+"/victim/status", 404, ""),
		get("a cluster kind in a namespace", "/api/v1/namespaces/default/nodes", 404, ""),
		get("a name with a slash", configMaps+"/..%2Fsecrets", 404, ""),
		get("a name with capitals", configMaps+"/VICTIM", 404, "NotFound"),
		get("a name of a slash", configMaps+"/%2F", 404, "NotFound"),
		get("an empty segment", "/api/v1/namespaces//configmaps", 404, "NotFound"),
		get("a dot", configMaps+"/%2e", 404, "NotFound"),
		get("two dots", configMaps+"/%2e%2e/secrets", 404, "NotFound"),
		get("a name with NUL", configMaps+"/%00", 404, "NotFound"),
		get("a name that is not UTF-8", configMaps+"/%ff", 404, "NotFound"),
		get("a namespace with NUL", "/api/v1/namespaces/%00/configmaps", 404, "NotFound"),
		{name: "POST to an empty namespace", method: "POST", path: "/api/v1/namespaces//configmaps", body: configMap("n", ""), code: 404, reason: "NotFound"},
		{name: "PUT of a slash", method: "PUT", path: configMaps + "/%2F", body: configMap("n", ""), code: 404, reason: "NotFound"},
		{name: "PATCH of a slash", method: "PATCH", path: configMaps + "/%2F", contentType: mergePatch, body: `{}`, code: 404, reason: "NotFound"},
		{name: "a watch of a slash", method: "GET", path: configMaps + "/%2F?watch=1", code: 404, reason: "NotFound"},
		{name: "POST to an object", method: "POST", path: configMaps + "/victim", body: configMap("victim", ""), code: 405, reason: "MethodNotAllowed"},
		{name: "PUT to a collection", method: "PUT", path: configMaps, body: configMap("n", ""), code: 405, reason: "MethodNotAllowed"},
		{name: "PATCH of a collection", method: "PATCH", path: configMaps, contentType: mergePatch, body: `{}`, code: 405, reason: "MethodNotAllowed"},
		{name: "DELETE of all namespaces", method: "DELETE", path: namespaces, code: 405, reason: "MethodNotAllowed"},
		{name: "DELETE in all namespaces", method: "DELETE", path: "/api/v1/configmaps", code: 405, reason: "MethodNotAllowed"},
		{name: "DELETE in all namespaces, of a custom kind", method: "DELETE", path: "/apis/test.exeunt.dev/v1/gadgets", code: 404}, // plain text, as in Kubernetes
		{name: "POST without a namespace", method: "POST", path: "/api/v1/configmaps", body: configMap("n", ""), code: 405, reason: "MethodNotAllowed"},
		{name: "a verb of one's own", method: "EXPLODE", path: configMaps, code: 405},
		{name: "HEAD", method: "HEAD", path: configMaps + "/victim", code: 405},
		list("a broken label selector", "labelSelector="+url.QueryEscape("a in (b"), 400, "BadRequest"),
		list("a label selector of bad values", "labelSelector="+url.QueryEscape("a=b c"), 400, "BadRequest"),
		list("a broken field selector", "fieldSelector=metadata.name", 400, "BadRequest"),
		list("an unknown field", "fieldSelector=spec.colour%3Dred", 400, "BadRequest"),
		list("a limit that is no number", "limit=many", 400, "BadRequest"),
		list("a version that is no number", "resourceVersion=abc", 400, "BadRequest"),
		list("a version below zero", "resourceVersion=-1", 400, "BadRequest"),
		list("a version beyond all bounds", "resourceVersion=99999999999999999999999999", 400, "BadRequest"),
		list("a watch from no number", "watch=1&resourceVersion=abc", 500, ""),
		list("a match without a version", "resourceVersionMatch=Exact", 422, "Invalid"),
		list("an unknown match", "resourceVersion=1&resourceVersionMatch=Roughly", 422, "Invalid"),
		list("initial events without a watch", "sendInitialEvents=true", 422, "Invalid"),
		list("initial events without a match", "watch=1&sendInitialEvents=true", 422, "Invalid"),
		list("a token that is none", "limit=1&continue=abc", 400, "BadRequest"),
		list("a token that is not even base64", "limit=1&continue=%21%21%21", 400, "BadRequest"),
		list("a token of nothing", "limit=1&continue="+token(`{}`), 400, "BadRequest"),
		list("a token of another form", "limit=1&continue="+token(`{"v":"meta.k8s.io/v9","rv":5,"start":"a"}`), 400, "BadRequest"),
		list("a token that climbs out", "limit=1&continue="+token(`{"v":"meta.k8s.io/v1","rv":5,"start":"../../secrets/x"}`), 400, "BadRequest"),
		list("a very long token", "limit=1&continue="+token(strings.Repeat("x", 100<<10)), 400, "BadRequest"),
		list("a version in the future", "resourceVersion=1000000000", 504, "Timeout"),
		list("an exact version in the future", "resourceVersion=1000000000&resourceVersionMatch=Exact", 504, "Timeout"),
		list("a selector larger than a header may be", "labelSelector="+strings.Repeat("a", 2<<20), 431, ""),
		list("a selector of ten thousand values", "labelSelector="+url.QueryEscape("a in ("+strings.Repeat("v,", 10000)+"w"), 400, "BadRequest"),
	}
}

func nested(open, shut string, n int) string {
	return strings.Repeat(open, n) + strings.Repeat(shut, n)
}

// deepProtobuf is a protobuf body of n messages inside each other.
func deepProtobuf(n int) string {
	var message []byte
	for range n {
		header := binary.AppendUvarint([]byte{0x12}, uint64(len(message))) // field 2, length-delimited
		message = append(header, message...)
	}
	return "k8s\x00" + string(message)
}

// copyBomb is a JSON patch that doubles its value 40 times.
func copyBomb() string {
	return `[{"op":"add","path":"/z","value":["` + strings.Repeat("x", 1000) + `"]}` +
		strings.Repeat(`,{"op":"copy","from":"/z","path":"/z/-"}`, 40) + `]`
}

func yamlBomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return b.String()
}

// TestBadInput sends invalid requests. After each one the server answers as before and has
// written no revision.
func TestBadInput(t *testing.T) {
	groups := map[string][]bad{"bodies": badBodies(), "objects": badObjects(), "patches": badPatches(), "deletes": badDeletes(), "reads": badReads()}
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		h := s.HTTP()
		makeVictims(t, h)
		for group, cases := range groups {
			for _, c := range cases {
				t.Run(group+"/"+c.name, func(t *testing.T) { refuse(t, s, h, c) })
			}
		}
	})
}

func makeVictims(t *testing.T, h *harness.HTTP) {
	t.Helper()
	made := h.Do(t, harness.Request{Method: "POST", Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", Body: gadgetCRD})
	if made.Code != 201 {
		t.Fatalf("create the CRD: %d %s", made.Code, made.Body)
	}
	gadget := `{"apiVersion":"test.exeunt.dev/v1","kind":"Gadget","metadata":{"name":"victim"},"spec":{"size":1}}`
	harness.Until(t, "the CRD to be served", func() error {
		if a := h.Do(t, harness.Request{Method: "POST", Path: gadgets, Body: gadget}); a.Code != 201 {
			return fmt.Errorf("%d %s", a.Code, a.Body)
		}
		return nil
	})
	// The server's own write for the new version must not fall into a case.
	harness.Until(t, "the CRD's APIService", func() error {
		if a := h.Do(t, harness.Request{Method: "GET", Path: "/apis/apiregistration.k8s.io/v1/apiservices/v1.test.exeunt.dev"}); a.Code != 200 {
			return fmt.Errorf("%d %s", a.Code, a.Body)
		}
		return nil
	})
	if a := h.Do(t, harness.Request{Method: "POST", Path: configMaps, Body: configMap("victim", "")}); a.Code != 201 {
		t.Fatalf("create the victim: %d %s", a.Code, a.Body)
	}
}

func refuse(t *testing.T, s *harness.Server, h *harness.HTTP, c bad) {
	before := revision(t, h)
	a := h.Do(t, harness.Request{Method: c.method, Path: c.path, Body: c.body, ContentType: c.contentType, Accept: c.accept})
	if a.Code != c.code {
		t.Errorf("answered %d, want %d: %.500s", a.Code, c.code, a.Body)
	}
	if got := strings.Trim(a.Field("reason"), `"`); c.reason != "" && got != c.reason {
		t.Errorf("reason %q, want %q: %.500s", got, c.reason, a.Body)
	}
	if !strings.Contains(a.Field("message"), strings.Trim(fmt.Sprintf("%q", c.message), `"`)) {
		t.Errorf("message %.500s, want %q in it", a.Field("message"), c.message)
	}
	s.Alive()
	if after := revision(t, h); after != before {
		t.Errorf("revision moved from %s to %s: something was written", before, after)
	}
}

// revision returns the server's newest revision, which every list carries.
func revision(t *testing.T, h *harness.HTTP) string {
	t.Helper()
	return h.Get(t, namespaces+"?limit=1").Field(version)
}

// TestWatchFromTheFuture: a watch from a future version waits, and ends at its timeout.
func TestWatchFromTheFuture(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		events := s.HTTP().Watch(t, configMaps+"?watch=1&resourceVersion=1000000000&timeoutSeconds=1").Rest(t)
		if len(events) != 0 {
			t.Fatalf("got %v, want nothing", events)
		}
	})
}

// TestAnonymous: without credentials only health and version are readable.
func TestAnonymous(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		h := s.HTTP()
		for path, code := range map[string]int{
			"/version": 200, "/healthz": 200, "/livez": 200, "/readyz": 200,
			"/": 401, "/api": 401, "/apis": 401, "/api/v1": 401, "/openapi/v2": 401, "/openapi/v3": 401, "/metrics": 401,
			"/api/v1/namespaces": 401, configMaps: 401, "/nowhere": 401, "/debug/pprof/": 401, "/debug/config": 401,
		} {
			for _, token := range []string{"", "forged"} {
				want := code
				if token != "" {
					want = 401 // bad credentials are refused everywhere
				}
				a := h.Do(t, harness.Request{Method: "GET", Path: path, Anonymous: true, Token: token})
				if a.Code != want {
					t.Errorf("GET %s with token %q answered %d, want %d: %.200s", path, token, a.Code, want, a.Body)
				}
			}
		}
		if a := h.Do(t, harness.Request{Method: "POST", Path: configMaps, Body: configMap("n", ""), Anonymous: true}); a.Code != 401 || a.Field("reason") != `"Unauthorized"` {
			t.Errorf("POST answered %d %s, want 401 Unauthorized", a.Code, a.Body)
		}
	})
}
