package review_test

import (
	"math"
	"testing"
	"time"

	"github.com/exeunt/exeunt/review"
)

func TestBackoff(t *testing.T) {
	b := review.Backoff{Base: time.Second, Cap: time.Minute}
	tests := []struct {
		failures int
		random   float64
		want     time.Duration
	}{
		{0, 0, time.Second},
		{1, 0, time.Second},
		{1, 1, 500 * time.Millisecond},
		{2, 0, 2 * time.Second},
		{3, 0, 4 * time.Second},
		{3, 0.5, 3 * time.Second},
		{6, 0, 32 * time.Second},
		{7, 0, time.Minute},
		{7, 1, 30 * time.Second},
		{math.MaxInt, 0, time.Minute},
		{2, 7, time.Second},
		{2, -7, 2 * time.Second},
	}
	for _, tt := range tests {
		if got := b.Delay(tt.failures, tt.random); got != tt.want {
			t.Errorf("after %d failures, random %v: %v, want %v", tt.failures, tt.random, got, tt.want)
		}
	}
	huge := review.Backoff{Base: time.Hour, Cap: math.MaxInt64}
	for n, last := 1, time.Duration(0); n < 100; n++ {
		d := huge.Delay(n, 0)
		if d < last {
			t.Fatalf("after %d failures %v, after one less %v", n, d, last)
		}
		last = d
	}
}
