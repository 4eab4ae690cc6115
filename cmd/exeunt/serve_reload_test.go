package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/server"
)

// TestReadAgain: a reload has the flags of the command line and the newest file, and names
// the line of a mistake.
func TestReadAgain(t *testing.T) {
	file := settingsFile(t, "max-cascade: 7\nregistry-max-uploads: 5\nevent-ttl: 2h\n")
	var first server.Config
	serve := newServe(func(_ context.Context, c server.Config) error {
		first = c
		return nil
	})
	serve.SetArgs([]string{"--config", file, "--max-cascade", "9", "--tls-san", "a.example,b.example", "--tls-san", "c.example",
		"--registry-review-after", "tag_delete=72h,tag_switch=36h", "--log-level", "WARN", "--archive-secrets=false", "--audit-webhook-batch-throttle-qps", "2.5"})
	if err := serve.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("max-cascade: 8\n\nregistry-max-uploads: 6\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := first.ReadAgain()
	if err != nil {
		t.Fatal(err)
	}
	if next.MaxCascade != 9 || next.RegistryQuotas.Uploads != 6 || next.EventTTL != time.Hour || next.LogLevel != first.LogLevel ||
		!slices.Equal(next.TLSNames, first.TLSNames) || len(next.TLSNames) != 3 || !next.ArchiveNoSecrets || next.Audit.WebhookBatch.ThrottleQPS != 2.5 {
		t.Errorf("the second configuration is %+v", next)
	}
	if diff := cmp.Diff(first.RegistryReviewAfter, next.RegistryReviewAfter); diff != "" || len(next.RegistryReviewAfter) != 2 {
		t.Error(diff)
	}
	if i := slices.IndexFunc(next.Settings, func(s server.Setting) bool { return s.Name == "registry-max-uploads" }); next.Settings[i].Source != file+":3" {
		t.Errorf("the setting is %+v", next.Settings[i])
	}
	if err := os.WriteFile(file, []byte("max-cascade: 8\nlissten: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := first.ReadAgain(); err == nil || !strings.Contains(err.Error(), file+`:2: unknown key "lissten"`) {
		t.Errorf("got %v", err)
	}
}
