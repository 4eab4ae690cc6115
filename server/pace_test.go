package server

import "testing"

func TestNextGCPercent(t *testing.T) {
	for _, c := range []struct {
		name              string
		percent           int
		collections, live uint64
		want              int
	}{
		{"idle", 50, 0, 30 << 20, 50},
		{"idle again", 213, 0, 30 << 20, 50},
		{"a little to do", 50, 1, 30 << 20, 50},
		{"busy with room", 213, 2, 30 << 20, 213},
		{"busy", 50, 9, 32 << 20, 200},
		{"busy, and the heap grew", 200, 5, 64 << 20, 100},
		{"a large heap", 100, 5, 1 << 30, 50},
		{"an empty heap", 50, 5, 0, 100 * busyRoom},
	} {
		if got := nextGCPercent(c.percent, c.collections, c.live); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
