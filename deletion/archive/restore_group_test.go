package archive

import (
	"context"
	"errors"
	"strings"
	"testing"
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
