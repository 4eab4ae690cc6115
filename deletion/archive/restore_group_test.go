package archive

import (
	"context"
	"errors"
	"strings"
	"testing"

	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// TestConcurrently: an error or a panic of a worker reaches the caller, and ends the others.
func TestConcurrently(t *testing.T) {
	broken := errors.New("broken")
	err := concurrently(t.Context(), 4, 1000, func(i int) error {
		if i == 7 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	defer func() {
		if p, ok := recover().(error); !ok || !strings.Contains(p.Error(), "boom") || !strings.Contains(p.Error(), "restore_group_test.go") {
			t.Errorf("the panic is %v", p)
		}
	}()
	_ = concurrently(context.Background(), 4, 1000, func(i int) error { panic("boom") })
	t.Error("the panic of a worker is lost")
}

// TestWarnings: a client that prints no status is told what did not come back, and nothing else.
func TestWarnings(t *testing.T) {
	for _, test := range []struct {
		status v1.RestoreStatus
		want   string
	}{
		{v1.RestoreStatus{Created: 3}, ""},
		{v1.RestoreStatus{LeftBehind: 2, Cascade: "c"}, "2 more objects of cascade c"},
		{v1.RestoreStatus{Conflicts: 1}, "1 were skipped"},
		{v1.RestoreStatus{Failed: 1}, "1 could not be restored"},
	} {
		var said []string
		warn(test.status, func(text string) { said = append(said, text) })
		if got := strings.Join(said, "; "); (got == "") != (test.want == "") || len(said) > 1 || !strings.HasPrefix(got, test.want) {
			t.Errorf("%+v: %q, want %q", test.status, got, test.want)
		}
	}
}
