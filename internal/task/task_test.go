package task

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sync/errgroup"
)

// TestPanicBeginsAgain: a task that panics, itself or in a goroutine of its own, begins again after a
// growing pause, is logged and counted, and the others do not notice.
func TestPanicBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log strings.Builder
		start := time.Now()
		var begun []time.Duration
		others := 0
		err := Run(ctx, slog.New(slog.NewTextHandler(&log, nil)),
			Task{"fragile", func(ctx context.Context) error {
				begun = append(begun, time.Since(start))
				switch len(begun) {
				case 1:
					panic("first")
				case 2:
					var group errgroup.Group
					group.Go(Catch(func() error { panic("second") }))
					return group.Wait()
				case 3:
					time.Sleep(calm) // a long life: the next pause is short again
					panic("third")
				}
				cancel()
				return nil
			}},
			Loop("steady", func(ctx context.Context) { others++; <-ctx.Done() }),
		)
		want := []time.Duration{0, time.Second, 3 * time.Second, 4*time.Second + calm}
		if err != nil || others != 1 || len(begun) != len(want) {
			t.Fatalf("Run returned %v; begun %v; the other task %d times", err, begun, others)
		}
		for i := range want {
			if begun[i] != want[i] {
				t.Errorf("begun at %v, want %v", begun, want)
			}
		}
		for _, text := range []string{"task=fragile", "panic=first", "panic=second", "panic=third", "task_test.go"} {
			if !strings.Contains(log.String(), text) {
				t.Errorf("the log has no %q:\n%s", text, log.String())
			}
		}
		if n := testutil.ToFloat64(Restarts.WithLabelValues("fragile")); n != 3 {
			t.Errorf("%v restarts counted, want 3", n)
		}
	})
}

// TestErrorEndsAll: an error is no panic: all tasks end, and Run returns it. A context that ends during the
// pause after a panic ends the task.
func TestErrorEndsAll(t *testing.T) {
	failed := errors.New("failed")
	ended := false
	err := Run(t.Context(), slog.New(slog.DiscardHandler),
		Task{"failing", func(context.Context) error { return failed }},
		Loop("waiting", func(ctx context.Context) { <-ctx.Done(); ended = true }),
		Task{"panicking", func(context.Context) error { panic("pause") }},
	)
	if !errors.Is(err, failed) || !ended {
		t.Errorf("Run returned %v; the other ended: %v", err, ended)
	}
}
