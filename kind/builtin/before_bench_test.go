package builtin

import (
	"context"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/lifecycle"
)

// BenchmarkBeforeCreate measures the rules of a kind for one new object. cpu-µs/op is the CPU time
// of this process.
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
			begin := cpu(b)
			for _, o := range copies {
				if _, err := lifecycle.BeforeCreate(context.Background(), v.Strategy, o, c); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu(b)-begin).Nanoseconds())/1000/float64(b.N), "cpu-µs/op")
		})
	}
}

// cpu returns the CPU time of this process so far.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
