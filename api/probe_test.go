package api

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/api/health"
)

// TestProbeLog: the log has the changes of a check, and not each probe. Failures before a
// check has passed for the first time, and those of a shutdown, are expected.
func TestProbeLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var p health.Log
	down, slow := errors.New("down"), errors.New("slow")
	for _, step := range []struct {
		check string
		err   error
		want  string // in the log, once; empty means no line
	}{
		{"database", down, ""}, {"database", down, ""}, {"database", nil, ""}, {"database", nil, ""},
		{"database", down, "level=WARN msg=\"not ready\" check=database error=down"}, {"database", down, ""},
		{"database", slow, "error=slow"}, {"database", nil, "level=INFO msg=\"ready again\" check=database"}, {"database", nil, ""},
		{"shutdown", nil, ""}, {"shutdown", down, ""},
	} {
		out.Reset()
		p.Note(log, step.check, step.err, step.check == shutdownCheck)
		if got := out.String(); !strings.Contains(got, step.want) || step.want == "" && got != "" {
			t.Errorf("%s, %v: the log is %q, want %q", step.check, step.err, got, step.want)
		}
	}
}
