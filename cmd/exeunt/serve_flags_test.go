package main

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/exeunt/exeunt/server"
)

// configured returns the configuration with which "serve" and a flag would start a
// server. Empty means without flags.
func configured(t *testing.T, flag string) (got server.Config, err error) {
	t.Helper()
	cmd := newServe(func(_ context.Context, c server.Config) error {
		got = c
		return nil
	})
	cmd.SetArgs(strings.Fields(flag))
	cmd.SetErr(&bytes.Buffer{})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.ExecuteContext(t.Context())
	got.Started, got.Logger = nil, nil // cannot be compared
	got.Settings = nil                 // would differ for flags without effect
	return got, err
}

// TestServeFlags: flags set the field that they are for, and no flag is ignored.
func TestServeFlags(t *testing.T) {
	defaults, err := configured(t, "")
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"--event-ttl=90s": "EventTTL 1m30s", "--service-cluster-ip-range=10.0.0.0/16": "ServiceRange 10.0.0.0/16", "--tls-san=a.example,192.0.2.1": "TLSNames [a.example 192.0.2.1]",
		"--archive-secrets=false": "ArchiveNoSecrets true", "--archive-for=2h": "ArchiveFor 2h0m0s", "--archive-max-bytes=5": "ArchiveMaxBytes 5",
		"--history-for=2h": "HistoryFor 2h0m0s", "--history-max-bytes=5": "HistoryMaxBytes 5", "--history-exclude=leases.coordination.k8s.io": "HistoryExclude [leases.coordination.k8s.io]",
		"--enable-garbage-collector=false": "NoCollector true", "--max-cascade=7": "MaxCascade 7", "--stall-timeout=7s": "StallTimeout 7s",
		"--max-requests-inflight=9": "MaxRequests 9", "--orphan-observed-generation-timeout=3s": "OrphanWait 3s",
		"--registry-accept-storage": "RegistryAcceptStorage true", "--registry-host=b.example": "RegistryHosts [b.example]",
		"--encryption-give-up-key=k": "GiveUpKey k", "--encryption-provider-config=f": "EncryptionConfig f",
		"--registry-create-namespaces=false": "RegistryNoNamespaces true", "--registry-create-repositories=false": "RegistryDeclared true",
	} {
		field, value, _ := strings.Cut(want, " ")
		c, err := configured(t, flag)
		got, before := reflect.ValueOf(c).FieldByName(field), reflect.ValueOf(defaults).FieldByName(field)
		if err != nil || fmt.Sprint(got) != value || fmt.Sprint(before) == value {
			t.Errorf("%s: %s is %v, and %v by default (%v); want %s", flag, field, got, before, err, value)
		}
	}
	ofProgram := []string{"config", "output", "log-level", "help"}
	values := []string{"true", "false", "7", "7s", "7m", "a=7m", "/some/file"} // one of them is valid, and no default
	newServe(nil).Flags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(ofProgram, f.Name) && !slices.ContainsFunc(values, func(value string) bool {
			c, err := configured(t, "--"+f.Name+"="+value)
			return err == nil && !reflect.DeepEqual(c, defaults)
		}) {
			t.Errorf("--%s has no effect on the configuration", f.Name)
		}
	})
}
