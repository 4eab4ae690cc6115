package wire_test

import (
	"fmt"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

func configMap(name, metadata string) string {
	if metadata != "" {
		metadata = "," + metadata
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q%s},"data":{"k":"v"}}`, name, metadata)
}

// heldDependent blocks its owner and has its own finalizer, so that no collector can
// finish the owner while a test looks at it.
func heldDependent(name, owner string) string {
	return configMap(name, fmt.Sprintf(`"finalizers":["test.exeunt.dev/hold"],"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":"{uid}","blockOwnerDeletion":true}]`, owner))
}

func pod(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"busybox"}]%s}}`, name, spec)
}

const (
	deleteOptions = `{"apiVersion":"v1","kind":"DeleteOptions"%s}`
	deletionTime  = "metadata.deletionTimestamp"
	gracePeriod   = "metadata.deletionGracePeriodSeconds"
	finalizers    = "metadata.finalizers"
	version       = "metadata.resourceVersion"
)

func options(fields string) string { return fmt.Sprintf(deleteOptions, ","+fields) }

var lifecycles = map[string][]step{
	"a plain object comes and goes": {
		{name: "create", method: "POST", path: configMaps, code: 201,
			body: configMap("a", `"uid":"mine","creationTimestamp":"2001-01-01T00:00:00Z","deletionTimestamp":"2001-01-01T00:00:00Z","deletionGracePeriodSeconds":5`),
			want: map[string]string{"kind": `"ConfigMap"`, "metadata.uid": "*", "metadata.creationTimestamp": "*", deletionTime: "", gracePeriod: "", "metadata.namespace": `"default"`},
			save: map[string]string{"uid": "metadata.uid", "rv": version}},
		{name: "create again", method: "POST", path: configMaps, body: configMap("a", ""), code: 409,
			want: map[string]string{"reason": `"AlreadyExists"`, "message": `"configmaps \"a\" already exists"`, "details.name": `"a"`, "details.kind": `"configmaps"`}},
		{name: "get", method: "GET", path: configMaps + "/a", code: 200, want: map[string]string{"metadata.uid": `"{uid}"`, version: `"{rv}"`}},
		{name: "delete", method: "DELETE", path: configMaps + "/a", code: 200,
			want: map[string]string{"kind": `"Status"`, "status": `"Success"`, "details.name": `"a"`, "details.kind": `"configmaps"`, "details.uid": `"{uid}"`}},
		{name: "get nothing", method: "GET", path: configMaps + "/a", code: 404, want: map[string]string{"reason": `"NotFound"`, "message": `"configmaps \"a\" not found"`}},
		{name: "delete nothing", method: "DELETE", path: configMaps + "/a", code: 404, want: map[string]string{"reason": `"NotFound"`}},
		{name: "create again", method: "POST", path: configMaps, body: configMap("a", ""), code: 201, want: map[string]string{"metadata.uid": "*"}},
	},
	"finalizers hold the object": {
		{name: "create", method: "POST", path: configMaps, body: configMap("f", `"finalizers":["test.exeunt.dev/one","test.exeunt.dev/two"]`), code: 201,
			save: map[string]string{"uid": "metadata.uid", "rv": version}},
		{name: "delete marks", method: "DELETE", path: configMaps + "/f", code: 200,
			want: map[string]string{"kind": `"ConfigMap"`, deletionTime: "*", gracePeriod: "0", finalizers: `["test.exeunt.dev/one","test.exeunt.dev/two"]`},
			save: map[string]string{"marked": version, "time": deletionTime}},
		{name: "deleting again changes nothing", method: "DELETE", path: configMaps + "/f", code: 200, want: map[string]string{version: `"{marked}"`, deletionTime: `"{time}"`}},
		{name: "the name is held", method: "POST", path: configMaps, body: configMap("f", ""), code: 409,
			want: map[string]string{"reason": `"AlreadyExists"`, "message": `"object is being deleted: configmaps \"f\" already exists"`}},
		{name: "no new finalizer", method: "PATCH", path: configMaps + "/f", contentType: mergePatch, code: 422,
			body: `{"metadata":{"finalizers":["test.exeunt.dev/one","test.exeunt.dev/two","test.exeunt.dev/three"]}}`,
			want: map[string]string{"reason": `"Invalid"`, "details.causes.0.field": `"metadata.finalizers"`}},
		{name: "no way back", method: "PATCH", path: configMaps + "/f", contentType: mergePatch, code: 200,
			body: `{"metadata":{"deletionTimestamp":null,"labels":{"still":"writable"}}}`, want: map[string]string{deletionTime: `"{time}"`, "metadata.labels.still": `"writable"`}},
		{name: "one finalizer less", method: "PATCH", path: configMaps + "/f", contentType: mergePatch, code: 200,
			body: `{"metadata":{"finalizers":["test.exeunt.dev/two"]}}`, want: map[string]string{finalizers: `["test.exeunt.dev/two"]`}},
		{name: "still here", method: "GET", path: configMaps + "/f", code: 200},
		{name: "the last one goes, and the object", method: "PATCH", path: configMaps + "/f", contentType: jsonPatch, code: 200,
			body: `[{"op":"remove","path":"/metadata/finalizers/0"}]`, want: map[string]string{finalizers: "", "metadata.uid": `"{uid}"`}},
		{name: "gone", method: "GET", path: configMaps + "/f", code: 404},
	},
	"preconditions": {
		{name: "create", method: "POST", path: configMaps, body: configMap("p", ""), code: 201, save: map[string]string{"uid": "metadata.uid", "rv": version}},
		{name: "another uid", method: "DELETE", path: configMaps + "/p", body: options(`"preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}`), code: 409,
			want: map[string]string{"reason": `"Conflict"`}},
		{name: "another version", method: "DELETE", path: configMaps + "/p", body: options(`"preconditions":{"resourceVersion":"1"}`), code: 409,
			want: map[string]string{"reason": `"Conflict"`}},
		{name: "both right", method: "DELETE", path: configMaps + "/p", body: options(`"preconditions":{"uid":"{uid}","resourceVersion":"{rv}"}`), code: 200,
			want: map[string]string{"status": `"Success"`}},
	},
	"grace of a bound pod": {
		{name: "create", method: "POST", path: pods, body: pod("g", `,"nodeName":"n1"`), code: 201,
			want: map[string]string{"spec.terminationGracePeriodSeconds": "30", "status.phase": `"Pending"`}},
		{name: "delete", method: "DELETE", path: pods + "/g", code: 200, want: map[string]string{"kind": `"Pod"`, gracePeriod: "30", deletionTime: "*"}, save: map[string]string{"time": deletionTime}},
		{name: "shorter", method: "DELETE", path: pods + "/g?gracePeriodSeconds=10", code: 200, want: map[string]string{gracePeriod: "10", deletionTime: "*"}, save: map[string]string{"rv": version}},
		{name: "longer is not honoured", method: "DELETE", path: pods + "/g", body: options(`"gracePeriodSeconds":60`), code: 200, want: map[string]string{gracePeriod: "10", version: `"{rv}"`}},
		{name: "now", method: "DELETE", path: pods + "/g", body: options(`"gracePeriodSeconds":0`), code: 200, want: map[string]string{"kind": `"Pod"`}},
		{name: "gone", method: "GET", path: pods + "/g", code: 404},
	},
	"negative grace means one second": {
		{name: "create", method: "POST", path: pods, body: pod("n", `,"nodeName":"n1"`), code: 201},
		{name: "delete", method: "DELETE", path: pods + "/n", body: options(`"gracePeriodSeconds":-5`), code: 200, want: map[string]string{gracePeriod: "1"}},
		{name: "grace alone does not remove", method: "GET", path: pods + "/n", code: 200},
	},
	"an unscheduled pod leaves at once": {
		{name: "create", method: "POST", path: pods, body: pod("u", ""), code: 201},
		{name: "delete", method: "DELETE", path: pods + "/u", code: 200, want: map[string]string{"kind": `"Pod"`, "metadata.name": `"u"`}},
		{name: "gone", method: "GET", path: pods + "/u", code: 404},
	},
	"foreground, then background": {
		{name: "owner", method: "POST", path: configMaps, body: configMap("owner", ""), code: 201, save: map[string]string{"uid": "metadata.uid"}},
		{name: "dependent", method: "POST", path: configMaps, body: heldDependent("dependent", "owner"), code: 201},
		{name: "foreground", method: "DELETE", path: configMaps + "/owner?propagationPolicy=Foreground", code: 200,
			want: map[string]string{"kind": `"ConfigMap"`, deletionTime: "*", finalizers: `["foregroundDeletion"]`}},
		{name: "waits", method: "GET", path: configMaps + "/owner", code: 200, want: map[string]string{finalizers: `["foregroundDeletion"]`}},
		{name: "background releases it", method: "DELETE", path: configMaps + "/owner", body: options(`"propagationPolicy":"Background"`), code: 200},
		{name: "gone", method: "GET", path: configMaps + "/owner", code: 404},
		{name: "the dependent is held", method: "GET", path: configMaps + "/dependent", code: 200},
	},
	"orphan": {
		{name: "create", method: "POST", path: configMaps, body: configMap("o", `"finalizers":["test.exeunt.dev/hold"]`), code: 201},
		{name: "delete", method: "DELETE", path: configMaps + "/o", body: options(`"propagationPolicy":"Orphan"`), code: 200,
			want: map[string]string{deletionTime: "*", finalizers: `["test.exeunt.dev/hold","orphan"]`}},
		{name: "old spelling, create", method: "POST", path: configMaps, body: configMap("o2", ""), code: 201},
		{name: "old spelling", method: "DELETE", path: configMaps + "/o2?orphanDependents=true", code: 200, want: map[string]string{finalizers: `["orphan"]`}},
	},
	"a finalizer set beforehand decides, an option decides above it": {
		{name: "create", method: "POST", path: configMaps, body: configMap("x", `"finalizers":["orphan"]`), code: 201},
		{name: "dry run keeps the finalizer", method: "DELETE", path: configMaps + "/x?dryRun=All", code: 200, want: map[string]string{finalizers: `["orphan"]`, deletionTime: "*"}},
		{name: "background wins", method: "DELETE", path: configMaps + "/x?propagationPolicy=Background", code: 200, want: map[string]string{"status": `"Success"`}},
		{name: "gone", method: "GET", path: configMaps + "/x", code: 404},
	},
	"202 only for the old client that asked not to orphan": {
		{name: "create", method: "POST", path: configMaps, body: configMap("w", `"finalizers":["test.exeunt.dev/hold"]`), code: 201},
		{name: "accepted", method: "DELETE", path: configMaps + "/w", body: options(`"orphanDependents":false`), code: 202, want: map[string]string{deletionTime: "*"}},
	},
	"dry run": {
		{name: "create, dry", method: "POST", path: configMaps + "?dryRun=All", body: configMap("d", ""), code: 201, want: map[string]string{"metadata.uid": "*"}},
		{name: "nothing there", method: "GET", path: configMaps + "/d", code: 404},
		{name: "create", method: "POST", path: configMaps, body: configMap("d", ""), code: 201, save: map[string]string{"rv": version}},
		{name: "patch, dry", method: "PATCH", path: configMaps + "/d?dryRun=All", contentType: mergePatch, body: `{"data":{"k":"dry"}}`, code: 200, want: map[string]string{"data.k": `"dry"`}},
		{name: "delete, dry", method: "DELETE", path: configMaps + "/d?dryRun=All", code: 200},
		{name: "untouched", method: "GET", path: configMaps + "/d", code: 200, want: map[string]string{version: `"{rv}"`, "data.k": `"v"`}},
		{name: "a body overrides the query", method: "DELETE", path: configMaps + "/d?dryRun=All", body: fmt.Sprintf(deleteOptions, ""), code: 200},
		{name: "gone", method: "GET", path: configMaps + "/d", code: 404},
	},
	"delete a collection by selector": {
		{name: "one", method: "POST", path: configMaps, body: configMap("one", `"labels":{"set":"x"}`), code: 201},
		{name: "two", method: "POST", path: configMaps, body: configMap("two", `"labels":{"set":"x"}`), code: 201},
		{name: "three", method: "POST", path: configMaps, body: configMap("three", `"labels":{"set":"y"}`), code: 201},
		{name: "dry", method: "DELETE", path: configMaps + "?labelSelector=set%3Dx&dryRun=All", code: 200},
		{name: "still two", method: "GET", path: configMaps + "?labelSelector=set%3Dx", code: 200, want: map[string]string{"items.1.metadata.name": `"two"`}},
		{name: "delete", method: "DELETE", path: configMaps + "?labelSelector=set%3Dx", code: 200, want: map[string]string{"kind": `"ConfigMapList"`, "items.0.metadata.name": `"one"`, "items.1.metadata.name": `"two"`}},
		{name: "none left", method: "GET", path: configMaps + "?labelSelector=set%3Dx", code: 200, want: map[string]string{"items": "[]"}},
		{name: "the other stays", method: "GET", path: configMaps + "/three", code: 200},
	},
	"updates": {
		{name: "create", method: "POST", path: configMaps, body: configMap("c", ""), code: 201, save: map[string]string{"uid": "metadata.uid", "rv": version}},
		{name: "another uid", method: "PUT", path: configMaps + "/c", body: configMap("c", `"uid":"00000000-0000-0000-0000-000000000000"`), code: 409, want: map[string]string{"reason": `"Conflict"`}},
		{name: "another uid by patch", method: "PATCH", path: configMaps + "/c", contentType: mergePatch, body: `{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"}}`, code: 422, want: map[string]string{"reason": `"Invalid"`}},
		{name: "right version", method: "PUT", path: configMaps + "/c", body: configMap("c", `"resourceVersion":"{rv}","labels":{"n":"1"}`), code: 200, want: map[string]string{"metadata.uid": `"{uid}"`}},
		{name: "stale version", method: "PUT", path: configMaps + "/c", body: configMap("c", `"resourceVersion":"{rv}"`), code: 409, want: map[string]string{"reason": `"Conflict"`}},
		{name: "no version: the last word wins", method: "PUT", path: configMaps + "/c", body: configMap("c", `"labels":{"n":"2"}`), code: 200, save: map[string]string{"rv": version}},
		{name: "a write that changes nothing is none", method: "PUT", path: configMaps + "/c", body: configMap("c", `"labels":{"n":"2"}`), code: 200, want: map[string]string{version: `"{rv}"`}},
		{name: "no such object", method: "PUT", path: configMaps + "/missing", body: configMap("missing", ""), code: 404, want: map[string]string{"reason": `"NotFound"`}},
		{name: "leases may be made by PUT", method: "PUT", path: leases + "/l", body: `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"},"spec":{"holderIdentity":"me"}}`, code: 201},
		{name: "a generated name", method: "POST", path: configMaps, body: `{"metadata":{"generateName":"gen-"}}`, code: 201, want: map[string]string{"metadata.name": "*", "metadata.generateName": `"gen-"`}},
	},
	"generation": {
		{name: "create", method: "POST", path: deployments, code: 201, want: map[string]string{"metadata.generation": "1", "status": "{}"},
			body: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","finalizers":["test.exeunt.dev/hold"]},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}},"status":{"replicas":7}}`},
		{name: "a label", method: "PATCH", path: deployments + "/web", contentType: mergePatch, body: `{"metadata":{"labels":{"x":"y"}}}`, code: 200, want: map[string]string{"metadata.generation": "1"}},
		{name: "the spec", method: "PATCH", path: deployments + "/web", contentType: strategicPatch, body: `{"spec":{"replicas":2}}`, code: 200, want: map[string]string{"metadata.generation": "2"}},
		{name: "an annotation, on a Deployment", method: "PATCH", path: deployments + "/web", contentType: mergePatch, body: `{"metadata":{"annotations":{"x":"y"}}}`, code: 200, want: map[string]string{"metadata.generation": "3"}},
		{name: "the status", method: "PATCH", path: deployments + "/web/status", contentType: mergePatch, body: `{"spec":{"replicas":9},"status":{"replicas":2}}`, code: 200, want: map[string]string{"metadata.generation": "3", "spec.replicas": "2", "status.replicas": "2"}},
		{name: "deletion", method: "DELETE", path: deployments + "/web", code: 200, want: map[string]string{"metadata.generation": "4", deletionTime: "*"}},
		{name: "a ConfigMap keeps what it was sent", method: "POST", path: configMaps, body: configMap("gen", `"generation":7`), code: 201, want: map[string]string{"metadata.generation": "7"}},
	},
	"a job orphans unless told otherwise, and says so": {
		{name: "create", method: "POST", path: jobs, code: 201,
			body: `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j","finalizers":["test.exeunt.dev/hold"]},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`},
		{name: "delete", method: "DELETE", path: jobs + "/j", code: 200, want: map[string]string{finalizers: `["test.exeunt.dev/hold","orphan"]`}, warning: "child pods are preserved by default when jobs are deleted"},
	},
	"a namespace ends": {
		{name: "create", method: "POST", path: namespaces, body: `{"metadata":{"name":"shop"}}`, code: 201, want: map[string]string{"status.phase": `"Active"`, "spec.finalizers": `["kubernetes"]`}},
		{name: "something in it", method: "POST", path: namespaces + "/shop/configmaps", body: configMap("held", `"finalizers":["test.exeunt.dev/hold"]`), code: 201},
		{name: "delete", method: "DELETE", path: namespaces + "/shop", code: 200, want: map[string]string{"kind": `"Namespace"`, "status.phase": `"Terminating"`, deletionTime: "*"}},
		{name: "nothing new", method: "POST", path: namespaces + "/shop/configmaps", body: configMap("late", ""), code: 403,
			want: map[string]string{"reason": `"Forbidden"`, "details.causes.0.reason": `"NamespaceTerminating"`}},
		{name: "finalize", method: "PUT", path: namespaces + "/shop/finalize", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"},"spec":{"finalizers":[]}}`, code: 422, // Kubernetes leaves the content behind
			want: map[string]string{"reason": `"Invalid"`, "details.causes.0.field": `"spec.finalizers"`}},
		{name: "still there", method: "GET", path: namespaces + "/shop", code: 200},
		{name: "no namespace, nothing in it", method: "POST", path: namespaces + "/nowhere/configmaps", body: configMap("late", ""), code: 404, want: map[string]string{"reason": `"NotFound"`}},
	},
	"odd but legal": {
		{name: "create", method: "POST", path: configMaps, code: 201,
			body: `{"metadata":{"name":"odd","annotations":{"a":"\u0000\ud83d\ude00\u2028</script>"}},"data":{"nul":"\u0000","text":"\"\\\/\b\f\n\r\t\u00e9"},"binaryData":{"b":"AAECAw=="}}`},
		{name: "get", method: "GET", path: configMaps + "/odd", code: 200,
			want: map[string]string{"data.nul": `"\u0000"`, "binaryData.b": `"AAECAw=="`, "data.text": `"\"\\/\b\f\n\r\té"`}},
		{name: "yaml", method: "POST", path: configMaps, contentType: "application/yaml", body: "metadata: {name: yaml}\ndata: {k: v}\n", code: 201, want: map[string]string{"data.k": `"v"`}},
	},
}

// TestLifecycle plays every sequence on both engines. The sequences share a server,
// because their objects have different names.
func TestLifecycle(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		for name, steps := range lifecycles {
			t.Run(name, func(t *testing.T) { play(t, s, steps) })
		}
	})
}

// TestWatchLifecycle: a watch delivers each state once, in order, and the last event has
// the version of the removal.
func TestWatchLifecycle(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		h := s.HTTP()
		from := h.Get(t, configMaps+"?limit=1").Field(version)
		stream := h.Watch(t, configMaps+"?watch=1&resourceVersion="+from[1:len(from)-1])
		play(t, s, lifecycles["finalizers hold the object"])
		last := from
		for i, want := range []struct{ kind, finalizers string }{
			{"ADDED", `["test.exeunt.dev/one","test.exeunt.dev/two"]`},
			{"MODIFIED", `["test.exeunt.dev/one","test.exeunt.dev/two"]`},
			{"MODIFIED", `["test.exeunt.dev/one","test.exeunt.dev/two"]`},
			{"MODIFIED", `["test.exeunt.dev/two"]`},
			{"DELETED", ``},
		} {
			e := stream.Next(t)
			if e.Type != want.kind {
				t.Fatalf("event %d is %s, want %s: %v", i, e.Type, want.kind, e.Object)
			}
			// The removed object may show the finalizers last stored or last written;
			// Kubernetes shows the former.
			if want.kind != "DELETED" && e.Field(finalizers) != want.finalizers {
				t.Fatalf("event %d has finalizers %s, want %s", i, e.Field(finalizers), want.finalizers)
			}
			if !later(last, e.Field(version)) {
				t.Fatalf("event %d has version %s, not after %s", i, e.Field(version), last)
			}
			last = e.Field(version)
		}
	})
}

// later compares two resourceVersions in their JSON form: integers without leading zeros.
func later(a, b string) bool {
	return len(a) < len(b) || len(a) == len(b) && a < b
}
