package fieldowner

import (
	"fmt"
	"math/rand"
	"sort"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
)

// TestOwnersAgree: several managers write random objects of every built-in kind, with
// our Owners and with the library's field manager. The results are equal.
func TestOwnersAgree(t *testing.T) {
	t.Parallel()
	const seeds = 6
	for _, k := range builtin.Kinds() {
		for _, v := range k.Versions {
			if k.Ephemeral {
				continue
			}
			t.Run(v.GVK.String(), func(t *testing.T) {
				t.Parallel()
				compared := 0
				for seed := range int64(seeds) {
					compared += writeByTurns(t, v, seed)
				}
				if compared < seeds {
					t.Errorf("only %d updates were ours to do", compared)
				}
			})
		}
	}
}

// writeByTurns creates an object and updates it a few times. It returns how many updates
// Owners did itself.
func writeByTurns(t *testing.T, v *kind.Version, seed int64) (compared int) {
	t.Helper()
	library, err := NewManager(v.Wire, v.GVK, "", v.ResetFields)
	if err != nil {
		t.Fatal(err)
	}
	ours := New(v, library)
	chance := rand.New(rand.NewSource(seed))
	fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs), rand.NewSource(seed), builtin.Codecs()).NumElements(0, 3)
	now := time.Now()

	live := random(t, v, fill)
	live.GetObjectKind().SetGroupVersionKind(v.GVK)
	want := library.UpdateNoErrors(v.New(), live.DeepCopyObject(), "m0")
	ours.Created(live, accessor(t, live), "m0", now)
	compareManaged(t, fmt.Sprintf("seed %d, create", seed), want, live)
	accessor(t, live).SetUID("u")
	for turn := range 6 {
		next := live.DeepCopyObject()
		switch chance.Intn(4) {
		case 0: // a completely different object
			next = random(t, v, fill)
		case 1: // no change
		default: // some metadata changes
			perRequest := accessor(t, random(t, v, fill))
			accessor(t, next).SetAnnotations(perRequest.GetAnnotations())
			accessor(t, next).SetFinalizers(perRequest.GetFinalizers())
		}
		if chance.Intn(2) == 0 {
			accessor(t, next).SetManagedFields(nil)
		}
		manager := fmt.Sprintf("m%d", chance.Intn(3))
		want := library.UpdateNoErrors(live.DeepCopyObject(), next.DeepCopyObject(), manager)
		entries, err := ours.ownersAfterUpdate(live, next, manager, now)
		if err != nil && len(accessor(t, live).GetManagedFields()) > 0 && len(accessor(t, next).GetManagedFields()) > 0 {
			t.Fatalf("seed %d, turn %d: left to the library: %v", seed, turn, err)
		}
		if err != nil {
			return compared // no manager owns a field, or the object cannot be typed: the library handles it
		}
		accessor(t, next).SetManagedFields(entries)
		compareManaged(t, fmt.Sprintf("seed %d, turn %d", seed, turn), want, next)
		compared++
		live = next
		accessor(t, live).SetUID("u")
	}
	return compared
}

func random(t *testing.T, v *kind.Version, fill *randfill.Filler) runtime.Object {
	t.Helper()
	obj := v.New()
	fill.Fill(obj)
	accessor(t, obj).SetManagedFields(nil)
	return obj
}

func accessor(t *testing.T, obj runtime.Object) metav1.Object {
	t.Helper()
	m, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// compareManaged compares the owners without their times and without the order, which
// follows from the times.
func compareManaged(t *testing.T, what string, want, got runtime.Object) {
	t.Helper()
	read := func(obj runtime.Object) (out []string) {
		for _, e := range accessor(t, obj).GetManagedFields() {
			out = append(out, fmt.Sprintf("%s %s %s %s %t %s", e.Manager, e.Operation, e.APIVersion, e.Subresource, e.Time != nil, e.FieldsV1))
		}
		sort.Strings(out)
		return out
	}
	if diff := cmp.Diff(read(want), read(got)); diff != "" {
		t.Fatalf("%s: owners differ (-library +ours):\n%s", what, diff)
	}
}
