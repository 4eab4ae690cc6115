package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestNotes: the log says what the server found at its start, and why it stops.
func TestNotes(t *testing.T) {
	t.Parallel()
	var log output
	r := start(t, Config{Data: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	dbtest.Await(t, "the server says what it found", func() bool {
		return strings.Contains(log.String(), `level=INFO msg="server started" version=test database=sqlite schema=`)
	})
	if text := log.String(); strings.Contains(text, "objects=0 ") || !strings.Contains(text, " failing=0 paused=false") {
		t.Errorf("the log is\n%s", text)
	}
	r.stop()
	if text := log.String(); strings.Count(text, `level=INFO msg="shutting down: signal received"`) != 1 {
		t.Errorf("the log is\n%s", text)
	}
}

// TestWaitingReviews: the note names each queue with reviews that are due.
func TestWaitingReviews(t *testing.T) {
	t.Parallel()
	got := waitingReviews([]Queue{{Name: "objects"}, {Name: "registry-manifests", Depth: 20, Overdue: 12}, {Name: "provisioned-resources", Overdue: 1}})
	if want := "registry-manifests: 12, provisioned-resources: 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
