package expiry

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestOpens: random windows open at the first minute from a time on that is in one of them.
func TestOpens(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	days := []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}
	for range 300 {
		var s spec
		for range 1 + random.IntN(3) {
			w := window{From: fmt.Sprintf("%02d:%02d", random.IntN(24), random.IntN(60)), To: fmt.Sprintf("%02d:%02d", random.IntN(24), random.IntN(60))}
			if random.IntN(2) == 0 {
				w.Days = []string{days[random.IntN(7)], days[random.IntN(7)]}
			}
			s.Windows = append(s.Windows, w)
		}
		var p Policy
		if err := p.parsePace(&s); err != nil {
			t.Fatal(err)
		}
		in := func(at time.Time) bool {
			return slices.ContainsFunc(p.Windows, func(w window) bool {
				for begin := at.Truncate(wholeDay).Add(w.from - wholeDay); !begin.After(at); begin = begin.Add(wholeDay) {
					if at.Before(begin.Add(w.length)) && (len(w.Days) == 0 || slices.Contains(w.Days, begin.Weekday().String()[:3])) {
						return true
					}
				}
				return false
			})
		}
		at := time.Date(2026, 11, 19, random.IntN(24), random.IntN(60), 0, 0, time.UTC)
		want := at
		for !in(want) {
			want = want.Add(time.Minute)
		}
		if got := p.opens(at); !got.Equal(want) {
			t.Errorf("%+v open at %v after %v, want %v", s.Windows, got, at, want)
		}
	}
}

// TestRate: a policy takes so many objects in each slot of time, and only in its windows.
func TestRate(t *testing.T) {
	each(t, func(w *world) { // at 01:16:40
		for i := range 10 {
			w.configMap(fmt.Sprint("m", i), time.Duration(i)*time.Second, tmp)
		}
		w.now = time.Unix(0, 0).Add(4 * time.Hour)
		w.policy(policyKey("p"), 1, "1", `{"resources":["configmaps"],"expire":{"after":"1h"},"rate":{"objects":4,"per":"Hour"},"windows":[{"from":"05:30","to":"07:00"}]}`)
		for _, step := range []struct {
			at   string
			left int64
		}{{"4h", 10}, {"5h29m59s", 10}, {"5h30m", 6}, {"5h59m59s", 6}, {"6h", 2}, {"7h", 2}, {"29h29m", 2}, {"29h30m", 0}} {
			at, err := time.ParseDuration(step.at)
			if err != nil {
				t.Fatal(err)
			}
			w.now = time.Unix(0, 0).Add(at)
			w.settle()
			if left, err := w.store.Reader().Count(t.Context(), configMaps, "shop", 100); err != nil || left != step.left {
				t.Errorf("at %s: %d are left, want %d, %v", step.at, left, step.left, err)
			}
		}
	})
}
