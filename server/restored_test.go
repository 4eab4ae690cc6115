package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/backup"
)

// TestHalfRestored: no server starts in a directory that a restore has not finished, and
// it creates no database there.
func TestHalfRestored(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, backup.RestoringFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), Config{Data: data, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "a restore into this directory has not ended. Run exeunt backup restore again") {
		t.Errorf("Run: %v", err)
	}
	if _, err := os.Stat(filepath.Join(data, "exeunt.db")); err == nil {
		t.Error("the server made a database")
	}
}
