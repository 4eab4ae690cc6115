package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestArchiveSelector(t *testing.T) {
	f := archiveFilter{kind: "deploy", actor: "a,b=c", cascade: "x"}
	if got, want := f.selector(), `spec.kind=deploy,spec.actor=a\,b\=c,spec.cascade=x`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if f.empty() || !(&archiveFilter{}).empty() {
		t.Error("empty does not recognise a filter")
	}
}

// TestArchiveRefuses: wrong arguments are refused before the server is asked.
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
		{newRestore, "--cascade y --with-cascade", "leave out --with-cascade"},
		{newArchive, "show", "accepts 1 arg"},
		{newArchive, "show x -o wide", "want json, yaml, name"},
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
	writeRestore(&printer{out: &out}, &warnings, v1.RestoreSpec{DryRun: true}, status)
	want := "namespace/shop skipped (dry run): the name is taken\nshop configmap/a created (dry run)\n1 created, 1 skipped, 0 failed (dry run)\n"
	if out.String() != want || warnings.String() != "Warning: configmap/a: no owner\n" {
		t.Errorf("got %q and %q", out.String(), warnings.String())
	}
}

// TestWriteRestoreCalledOff: only if all that was asked for was not gone yet, and there was something, the output says so.
func TestWriteRestoreCalledOff(t *testing.T) {
	one := v1.RestoreResult{Kind: "ConfigMap", Namespace: "shop", Name: "a", Outcome: v1.Created}
	const active, counts = "It was not gone yet", " skipped, 0 failed"
	for _, test := range []struct {
		calledOff, results int
		want, without      string
	}{{0, 0, counts, active}, {0, 1, counts, active}, {1, 1, active, counts}, {1, 2, counts, active}} {
		var out, warnings strings.Builder
		writeRestore(&printer{out: &out}, &warnings, v1.RestoreSpec{}, v1.RestoreStatus{CalledOff: test.calledOff, Results: slices.Repeat([]v1.RestoreResult{one}, test.results)})
		if !strings.Contains(out.String(), test.want) || strings.Contains(out.String(), test.without) {
			t.Errorf("%d of %d called off:\n%s", test.calledOff, test.results, out.String())
		}
	}
}

// TestWriteRestoreRemarks: the output says how many objects are left in the archive, and names each conflict.
func TestWriteRestoreRemarks(t *testing.T) {
	status := v1.RestoreStatus{Created: 1, Skipped: 1, Conflicts: 1, LeftBehind: 57, Cascade: "c-1", Results: []v1.RestoreResult{
		{Kind: "Deployment", Namespace: "shop", Name: "web", Outcome: v1.Created, Relinked: 2},
		{Kind: "ConfigMap", Namespace: "shop", Name: "a", UID: "u1", Outcome: v1.Skipped, Reason: "the name is taken", ConflictsWith: "u2"},
	}}
	var out, warnings strings.Builder
	writeRestore(&printer{out: &out}, &warnings, v1.RestoreSpec{}, status)
	for _, want := range []string{
		"shop deployment/web created; 2 objects restored before it: the owner reference is back\n",
		"1 conflict, nothing was overwritten:\n  configmap/a (uid u2) is there; the archive has uid u1\n",
		"57 objects left with it and still in the archive: exeunt restore --cascade c-1, or the same command with --with-cascade\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
}

// TestUndoIsOfADeletion: undo calls back the client's newest deletion that is not restored: no cascade of another client,
// and none that objects of a backup are in, which is newer here.
func TestUndoIsOfADeletion(t *testing.T) {
	cascade := func(name, by string, millisecond, restored int) string { // all in one second
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"requestedBy":%q,"startedAt":"2026-01-01T00:00:00.%03d000Z","root":{"kind":"Namespace","name":"shop"}},"status":{"removed":2,"restored":%d}}`,
			name, by, millisecond, restored)
	}
	list := `{"items":[` + strings.Join([]string{
		cascade("backup-20260101-0a0b0c0d0e", "me", 9, 0), cascade("b-of-another", "other", 8, 0), cascade("c-restored", "me", 7, 2),
		cascade("d-older", "me", 1, 0), cascade("e-last", "me", 2, 1),
	}, ",") + `]}`
	var asked strings.Builder
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(req.URL.Path, "/selfsubjectreviews"):
			fmt.Fprint(w, `{"status":{"userInfo":{"username":"me"}}}`)
		case req.Method == http.MethodGet:
			fmt.Fprint(w, list)
		default:
			_, _ = io.Copy(&asked, req.Body)
			fmt.Fprint(w, `{"metadata":{"name":"r"},"status":{"phase":"Complete","complete":true}}`)
		}
	}))
	defer server.Close()
	var out strings.Builder
	cmd := newUndo()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs([]string{"--kubeconfig", kubeconfigFor(t, server.URL), "-A"})
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(asked.String(), `"cascade":"e-last"`) {
		t.Errorf("%v: %s\n%s", err, asked.String(), out.String())
	}
}

// TestPurge: each format has the purged objects; an object that is gone already is
// not among them.
func TestPurge(t *testing.T) {
	const list = `{"items":[{"metadata":{"name":"1","namespace":"shop"},"spec":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}},` +
		`{"metadata":{"name":"2","namespace":"shop"},"spec":{"apiVersion":"v1","kind":"ConfigMap","name":"a"}}]}`
	var deleted atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case req.Method == http.MethodGet:
			fmt.Fprint(w, list)
		case strings.HasSuffix(req.URL.Path, "/namespaces/shop/archivedobjects/2"):
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound"}`)
		default:
			deleted.Add(1)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		}
	}))
	defer server.Close()
	kubeconfig := kubeconfigFor(t, server.URL)
	for _, test := range []struct {
		args    string
		deleted int32
		want    string
	}{
		{"--all", 1, "1 object purged\n"},
		{"--all --dry-run", 0, "2 objects would be purged\n"},
		{"--all -o name", 1, "deployment.apps/web\n"},
		{"--all --dry-run -o name", 0, "deployment.apps/web\nconfigmap/a\n"},
		{"--all -o json", 1, "{\n  \"apiVersion\": \"lifecycle.exeunt.dev/v1\",\n  \"items\": [\n    {\n      \"metadata\": {\n        \"name\": \"1\","},
		{"--all -o yaml", 1, "apiVersion: lifecycle.exeunt.dev/v1\nitems:\n- metadata:\n    name: \"1\"\n"},
	} {
		deleted.Store(0)
		var out strings.Builder
		cmd := newArchive()
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"purge", "--kubeconfig", kubeconfig}, strings.Fields(test.args)...))
		if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), test.want) || deleted.Load() != test.deleted {
			t.Errorf("purge %s: %v, %d deleted, printed:\n%s\nwant %q", test.args, err, deleted.Load(), out.String(), test.want)
		}
	}
}

func TestWriteArchived(t *testing.T) {
	a := &v1.ArchivedObject{Object: &runtime.RawExtension{Raw: []byte(`{"kind":"ConfigMap","data":{"a":"b"}}`)}, Spec: v1.ArchivedObjectSpec{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a", UID: "u1",
		RequestedBy: "alice", Actor: "system:garbage-collector", Cascade: "c-1", Size: 1,
	}}
	var out strings.Builder
	writeArchived(&printer{out: &out}, a)
	for _, want := range []string{
		"Kind:          ConfigMap (v1)\n", "Requested by:  alice\n", "Actor:         system:garbage-collector\n", "Size:          1 byte\n",
		"Object:\n  data:\n    a: b\n  kind: ConfigMap\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	a.Object = nil
	out.Reset()
	if writeArchived(&printer{out: &out}, a); !strings.Contains(out.String(), "not kept") {
		t.Errorf("got %q", out.String())
	}
}
