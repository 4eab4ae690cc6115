package builtin

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/kind"
)

// at returns the JSON of an object at a dotted path, or "-". A number is an index.
func at(t *testing.T, obj runtime.Object, path string) string {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	var value any = content
	for _, step := range strings.Split(path, "/") {
		switch v := value.(type) {
		case map[string]any:
			next, ok := v[step]
			if !ok {
				return "-"
			}
			value = next
		case []any:
			i := int(step[0] - '0')
			if i >= len(v) {
				return "-"
			}
			value = v[i]
		default:
			return "-"
		}
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

const aPod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers:
  - name: app
    image: nginx:1.29
`

const aDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: nginx}]}
`

const aJob = `
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: default, uid: 0000-1}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: app, image: busybox}]}
`

// TestDefaultsSettle checks that defaulting is idempotent, and that it works for an empty and for
// a full object.
func TestDefaultsSettle(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v *kind.Version) {
		for _, obj := range []runtime.Object{v.New(), full(t, v.GVK)} {
			Scheme().Default(obj)
			once := obj.DeepCopyObject()
			Scheme().Default(obj)
			equal(t, "the second defaulting", obj, once)
		}
	})
}
