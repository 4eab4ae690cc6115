package lifecycle_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// TestRandomHistories runs random commands against objects of different kinds.
// What must hold for every step is in world.check: the deletion time never
// moves later, the grace period never grows, finalizers only shrink while
// DELETING (apart from the collector's two), the generation never falls. That
// an object leaves exactly once is checked by world.leave and at the end.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			h := &history{world: newWorld(t), rand: rand.New(rand.NewPCG(seed, 1))}
			h.rules = h.randomRules()
			defer func() {
				if t.Failed() {
					t.Logf("history:\n%s", strings.Join(h.steps, "\n"))
				}
			}()
			for range 60 {
				h.step()
			}
			h.end()
		})
	}
}

type history struct {
	*world
	rand  *rand.Rand
	steps []string
}

func (h *history) randomRules() lifecycle.Rules {
	rules := lifecycle.Rules{DefaultPolicy: pick(h.rand, "", metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground)}
	if h.rand.IntN(2) == 0 {
		rules.Graceful = podRules.Graceful
	}
	if h.rand.IntN(3) == 0 {
		rules.DeleteFinalizers = []string{"kind/cleanup"}
	}
	if h.rand.IntN(3) == 0 {
		rules.Removable = func(body []byte) bool { return !strings.Contains(string(body), `"k":"1"`) }
	}
	return rules
}

func (h *history) step() {
	h.t.Helper()
	var err error
	name := ""
	switch n := h.rand.IntN(10); {
	case n < 2:
		name, err = "create", h.create(h.randomFinalizers())
	case n < 5:
		name, err = "update", h.update("", h.randomChange())
	case n < 8:
		options := h.randomOptions()
		name = fmt.Sprintf("delete %v", options.String())
		_, err = h.delete(options)
	default:
		h.now = h.now.Add(time.Duration(h.rand.IntN(40_000)) * time.Millisecond)
		name = "wait"
	}
	h.steps = append(h.steps, fmt.Sprintf("%s: %v (%v)", name, h.world, err))
	var refusal *object.Error
	if err != nil && !errors.As(err, &refusal) {
		h.t.Fatalf("%s: %v is not a refusal", name, err)
	}
}

// end deletes what is left and checks that every created object left once.
func (h *history) end() {
	h.t.Helper()
	if h.body != nil {
		last := metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0)), OrphanDependents: ptr(false)}
		if _, err := h.delete(last); err != nil {
			h.t.Fatal(err)
		}
	}
	if h.body != nil {
		if err := h.update("", func(obj *corev1.ConfigMap) { obj.Finalizers, obj.Data = nil, nil }); err != nil {
			h.t.Fatal(err)
		}
	}
	if h.body != nil {
		h.t.Fatalf("nothing holds the object, but it exists: %v", h.world)
	}
	for i := 1; i <= h.created; i++ {
		if uid := types.UID("uid-" + strconv.Itoa(i)); h.removed[uid] != 1 {
			h.t.Errorf("%s left %d times", uid, h.removed[uid])
		}
	}
}

func (h *history) randomFinalizers() []string {
	all := []string{"a/a", "b/b", "c/c", metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}
	h.rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	list := all[:h.rand.IntN(4)]
	if slices.Contains(list, metav1.FinalizerOrphanDependents) && slices.Contains(list, metav1.FinalizerDeleteDependents) {
		return nil // the two exclude each other: a create with both is refused
	}
	return list
}

// randomChange is one of the things that clients do, some of them forbidden.
func (h *history) randomChange() func(*corev1.ConfigMap) {
	list, data := h.randomFinalizers(), strconv.Itoa(h.rand.IntN(3))
	seconds, at := h.rand.Int64N(50)-5, metav1.NewTime(h.now.Add(time.Hour))
	return pick(h.rand,
		func(obj *corev1.ConfigMap) { obj.Finalizers = list },
		func(obj *corev1.ConfigMap) { obj.Finalizers = obj.Finalizers[:len(obj.Finalizers)/2] },
		func(obj *corev1.ConfigMap) { obj.Data = map[string]string{"k": data} },
		func(obj *corev1.ConfigMap) { obj.DeletionGracePeriodSeconds = &seconds },
		func(obj *corev1.ConfigMap) { obj.DeletionTimestamp, obj.DeletionGracePeriodSeconds = nil, nil },
		func(obj *corev1.ConfigMap) { obj.DeletionTimestamp, obj.Generation = &at, seconds },
	)
}

func (h *history) randomOptions() metav1.DeleteOptions {
	var options metav1.DeleteOptions
	if h.rand.IntN(2) == 0 {
		options.GracePeriodSeconds = ptr(h.rand.Int64N(50) - 5)
	}
	switch h.rand.IntN(6) {
	case 0:
		options.OrphanDependents = ptr(h.rand.IntN(2) == 0)
	case 1, 2:
		options.PropagationPolicy = ptr(pick(h.rand, metav1.DeletePropagationBackground,
			metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan, "Sideways"))
	case 3:
		options.Preconditions = &metav1.Preconditions{UID: ptr(types.UID("uid-1"))}
	}
	return options
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }
