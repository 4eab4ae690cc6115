package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/store"
)

// BenchmarkWrites runs each write of a 1 KiB ConfigMap with 32 clients, without a network.
// cpu-µs/op is the CPU time of this process, which is more reliable than wall time on a
// busy machine.
func BenchmarkWrites(b *testing.B) {
	text := strings.Repeat("some words of text = 4711; ", 38)
	body := func(n int64, stamp string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o-%d","labels":{"app":"bench"}},"data":{"text":%q,"stamp":%q}}`, n, text, stamp)
	}
	path := func(n int64) string { return fmt.Sprintf("%s/o-%d", configMaps, n) }
	proto := []string{"Content-Type: " + runtime.ContentTypeProtobuf, "Accept: " + runtime.ContentTypeProtobuf}
	for _, bench := range []struct {
		name   string
		seeded bool
		write  func(w *world, n int64) reply
	}{
		{"create", false, func(w *world, n int64) reply { return w.send("POST", configMaps, body(n, "a")) }},
		{"create-protobuf", false, func(w *world, n int64) reply {
			return w.send("POST", configMaps, asProtobuf(b, body(n, "a")), proto...)
		}},
		{"update-protobuf", true, func(w *world, n int64) reply { return w.send("PUT", path(n), asProtobuf(b, body(n, "b")), proto...) }},
		{"patch-protobuf", true, func(w *world, n int64) reply {
			return w.send("PATCH", path(n), `{"data":{"stamp":"c"}}`, "Content-Type: application/merge-patch+json", proto[1])
		}},
		{"update", true, func(w *world, n int64) reply { return w.send("PUT", path(n), body(n, "b")) }},
		{"patch", true, func(w *world, n int64) reply {
			return w.send("PATCH", path(n), `{"data":{"stamp":"c"}}`, "Content-Type: application/merge-patch+json")
		}},
		{"delete", true, func(w *world, n int64) reply { return w.send("DELETE", path(n), "") }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			w := newWorld(b, store.Options{})
			for n := range int64(b.N) {
				if bench.seeded {
					w.want(201, "POST", configMaps, body(n+1, "a"))
				}
			}
			var next atomic.Int64
			b.SetParallelism(16)
			b.ResetTimer()
			begin := cpu(b)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if r := bench.write(w, next.Add(1)); r.code >= 300 {
						b.Errorf("answered %d %s", r.code, r.body)
					}
				}
			})
			b.ReportMetric(float64((cpu(b)-begin).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// asProtobuf encodes the JSON of a ConfigMap as clients of controllers do. Its cost is part
// of the figure, about 10 µs.
func asProtobuf(b *testing.B, text string) string {
	var cm corev1.ConfigMap
	if err := json.Unmarshal([]byte(text), &cm); err != nil {
		b.Fatal(err)
	}
	info, _ := runtime.SerializerInfoForMediaType(builtin.Codecs().SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	data, err := runtime.Encode(builtin.Codecs().EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), &cm)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

// cpu returns the CPU time of this process so far.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
