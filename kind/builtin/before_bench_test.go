package builtin

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/lifecycle"
)

// BenchmarkBeforeCreate measures the rules of a kind for one new object.
func BenchmarkBeforeCreate(b *testing.B) {
	for name, manifest := range map[string]string{
		"ConfigMap":  `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}`,
		"Pod":        `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, ports: [{containerPort: 80}], env: [{name: A, value: b}]}]}}`,
		"Service":    `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {selector: {app: a}, ports: [{port: 80}], clusterIP: None}}`,
		"Deployment": `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}}`,
		"Job":        `{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`,
	} {
		b.Run(name, func(b *testing.B) {
			t := &testing.T{}
			obj := read(t, manifest)
			v := lookup(t, obj.GetObjectKind().GroupVersionKind())
			c := lifecycle.Creation{Namespace: "default", Now: time.Unix(1e9, 0), UID: "u", Suffix: "abcde"}
			copies := make([]runtime.Object, b.N)
			for i := range copies {
				copies[i] = obj.DeepCopyObject()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for _, o := range copies {
				if _, err := lifecycle.BeforeCreate(context.Background(), v.Strategy, o, c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
