package openapi

import (
	"strings"
	"testing"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
)

// definedKinds makes a kind of each embedded definition that has a list.
func definedKinds(t *testing.T) []*kind.Kind {
	t.Helper()
	defs, err := loadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	names := defs.names()
	var kinds []*kind.Kind
	for gvk := range names {
		if _, listed := names[gvk.GroupVersion().WithKind(gvk.Kind+"List")]; listed {
			kinds = append(kinds, newKind(gvk, strings.ToLower(gvk.Kind)+"s", func(_ *kind.Kind, v *kind.Version) {
				v.Status = present{}
			}))
		}
	}
	return kinds
}

func TestEmbeddedDefinitions(t *testing.T) {
	t.Parallel()
	if len(packed) > 600<<10 {
		t.Errorf("the embedded file has %d bytes", len(packed))
	}
	defs, err := loadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	reached := definitions{}
	for name := range defs {
		if err := defs.reach(name, reached); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{
		nameObjectMeta, nameListMeta, nameTypeMeta, namePartial, nameStatus, namePatch, nameScale,
		"io.k8s.apimachinery.pkg.version.Info", "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
	} {
		if defs[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestEveryBuiltinKind builds the documents of all Kubernetes kinds in the served groups, whether
// or not this server has them.
func TestEveryBuiltinKind(t *testing.T) {
	t.Parallel()
	kinds := definedKinds(t)
	if len(kinds) < 40 {
		t.Fatalf("%d kinds are defined", len(kinds))
	}
	s := New(kind.NewRegistry(kinds), "v0.1.0")
	for name, url := range readIndex(t, s) {
		checkRefs(t, name, get(t, s, url).Body.Bytes())
	}
	checkRefs(t, "v2", get(t, s, "/openapi/v2").Body.Bytes())
	checkKinds(t, s)
}

// TestServedKinds is the same for the kinds that this server has.
func TestServedKinds(t *testing.T) {
	t.Parallel()
	s := New(kind.NewRegistry(builtin.Kinds()), "v0.1.0")
	for name, url := range readIndex(t, s) {
		checkRefs(t, name, get(t, s, url).Body.Bytes())
	}
	checkKinds(t, s)
}

func BenchmarkIndex(b *testing.B) {
	kinds := builtin.Kinds()
	b.ReportAllocs()
	for b.Loop() {
		if w := ask(New(kind.NewRegistry(kinds), "v0.1.0"), "/openapi/v3"); w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}
