package gc

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	var p pace
	steps := []struct {
		name    string
		objects int
		took    time.Duration
		want    int // budget afterwards
	}{
		{"nothing known", 0, 0, firstBudget},
		{"too small to tell", leastBudget - 1, time.Minute, firstBudget},
		{"80 µs each", 500, 40 * time.Millisecond, 500},
		{"half the time: half way there", 500, 20 * time.Millisecond, 666},
		{"at once", 500, 0, 1333},
		{"at once again", 500, 0, mostBudget},
		{"a stall", 500, time.Minute, leastBudget},
	}
	for _, s := range steps {
		p.spent(s.objects, s.took)
		if got := p.budget(); got != s.want {
			t.Errorf("%s: budget %d, want %d", s.name, got, s.want)
		}
	}
	fixed := pace{fixed: 3}
	fixed.spent(1000, time.Millisecond)
	if got := fixed.budget(); got != 3 {
		t.Errorf("a fixed budget of 3 became %d", got)
	}
}
