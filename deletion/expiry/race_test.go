package expiry

import (
	"testing"
	"time"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store/storetest"
)

// TestFailureDelaysNoOther: a policy whose condition cannot be evaluated does not make another one late.
func TestFailureDelaysNoOther(t *testing.T) {
	each(t, func(w *world) {
		w.configMap("a", 0, tmp)
		w.policy(policyKey("bad"), 1, "1", `{"resources":["configmaps"],"condition":"object.nothing == 'x'","expire":{"after":"1h"}}`)
		w.policy(policyKey("good"), 1, "1", byAge)
		w.settle()
		w.now = born.Add(2*time.Hour - time.Second)
		w.settle()
		w.wantMaps("a")
		w.now = born.Add(2 * time.Hour)
		w.settle()
		w.wantMaps()
	})
}

// TestTwoWalks: a replica that walks while another one does counts nothing twice.
func TestTwoWalks(t *testing.T) {
	each(t, func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.configMap(name, -time.Hour, tmp)
		}
		key := policyKey("p")
		w.policy(key, 1, "", byAge)
		o, err := w.store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		walks := 0
		w.afterPage = func() {
			w.afterPage = nil
			walks++
			if _, err := (walker{w.Expirer}).review(t.Context(), o.UID); err != nil {
				t.Error(err)
			}
		}
		w.settle()
		w.wantStatus(key, "Observing: selected 3, would take 3, taken 0")
		if walks == 0 {
			t.Error("there was no second walk")
		}
	})
}

// TestStoppedBeforeTheDelete: a policy that is stopped after its review has decided deletes this object, which can be restored and
// stays, and no other.
func TestStoppedBeforeTheDelete(t *testing.T) {
	each(t, func(w *world) {
		a := w.configMap("a", 0, tmp)
		w.configMap("b", time.Minute, tmp)
		w.policy(policyKey("p"), 1, "1", byAge)
		w.settle()
		w.before = func(object.Object) error {
			storetest.Update(t, w.store, policyKey("p"), lifecycle.Rules{}, annotated(nil))
			return nil
		}
		w.now = born.Add(2 * time.Hour)
		w.settle()
		w.wantMaps("b")
		w.restore(a)
		w.now = born.Add(3 * time.Hour)
		w.settle()
		w.wantMaps("a", "b")
	})
}
