package history

import (
	"testing"
	"time"
)

func TestPause(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		name       string
		took, left time.Duration
		done, rest int64
		want       time.Duration
	}{
		{"as long as it works", second, 30 * second, 1000, 5000, second},
		{"just as long", second, 30 * second, 1000, 15_000, second},
		{"shorter, to end in time", second, 30 * second, 1000, 20_000, second / 2},
		{"none: it will not end in time", second, 30 * second, 1000, 40_000, 0},
		{"none: the time is over", second, -second, 1000, 1, 0},
		{"none: all is done", second, 30 * second, 1000, 0, 0},
		{"a step for what is left of one", second, 30 * second, 1000, 1, second},
		{"a restored backup has a jump of the revision", second, 30 * second, 10 * Jump, 1, second},
	} {
		if got := pause(c.took, c.left, c.done, c.rest); got != c.want {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
}
