package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	v1 "github.com/exeunt/exeunt/archive/v1"
)

func TestArchiveSelector(t *testing.T) {
	f := archiveFilter{kind: "deploy", actor: "a,b=c", cascade: "x"}
	if got, want := f.selector(), `spec.kind=deploy,spec.actor=a\,b\=c,spec.cascade=x`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if f.empty() || !(&archiveFilter{}).empty() {
		t.Error("empty does not tell a filter from none")
	}
}

// TestArchiveRefuses: mistakes are told before anybody is asked.
func TestArchiveRefuses(t *testing.T) {
	for _, test := range []struct {
		make func() *cobra.Command
		args string
		want string
	}{
		{newArchive, "purge", "say what to purge"},
		{newArchive, "purge --all --kind cm", "say what to purge"},
		{newArchive, "list -o wide", "want json, yaml, name"},
		{newRestore, "", "say what to restore"},
		{newRestore, "web", "is not KIND/NAME"},
		{newRestore, "deploy/", "is not KIND/NAME"},
		{newRestore, "deploy/web --cascade x", "either KIND/NAME or --cascade"},
		{newRestore, "--uid x --cascade y", "say what to restore"},
		{newRestore, "--uid x -o wide", "want json, yaml, name"},
	} {
		cmd := test.make()
		cmd.SetArgs(strings.Fields(test.args))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %s: got error %v, want one with %q", cmd.Name(), test.args, err, test.want)
		}
	}
}

func TestWriteRestore(t *testing.T) {
	status := v1.RestoreStatus{Created: 1, Skipped: 1, Results: []v1.RestoreResult{
		{Kind: "Namespace", Name: "shop", Outcome: v1.Skipped, Reason: "the name is taken"},
		{Kind: "ConfigMap", Namespace: "shop", Name: "a", Outcome: v1.Created, Warnings: []string{"no owner"}},
	}}
	var out, warnings strings.Builder
	if err := writeRestore(&out, &warnings, v1.RestoreSpec{DryRun: true}, status); err != nil {
		t.Fatal(err)
	}
	want := "namespace/shop skipped (dry run): the name is taken\nshop configmap/a created (dry run)\n1 created, 1 skipped, 0 failed (dry run)\n"
	if out.String() != want || warnings.String() != "Warning: configmap/a: no owner\n" {
		t.Errorf("got %q and %q", out.String(), warnings.String())
	}
}
