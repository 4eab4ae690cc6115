package api

import (
	"testing"

	"github.com/exeunt/exeunt/store"
)

// BenchmarkGet reads one ConfigMap, without a network.
func BenchmarkGet(b *testing.B) {
	w := newWorld(b, store.Options{})
	w.want(201, "POST", configMaps, `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if r := w.send("GET", configMaps+"/a", ""); r.code != 200 {
			b.Fatal(r.body)
		}
	}
}
