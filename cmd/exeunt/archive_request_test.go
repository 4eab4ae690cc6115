package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// TestFindRequest: the request of a removed object is found in the audit log, and in
// files that were rotated from it.
func TestFindRequest(t *testing.T) {
	dir := t.TempDir()
	line := func(id, stage string) string {
		return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"` + id + `","stage":"` + stage + `","verb":"delete","requestURI":"/x","user":{"username":"jo"},"sourceIPs":["192.0.2.7"]}` + "\n"
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(line("oldest", "ResponseComplete")))
	_ = w.Close()
	for name, text := range map[string]string{
		"audit.log":                            line("new", "RequestReceived") + line("other-new", "ResponseComplete") + line("new", "ResponseComplete"),
		"audit-2026-11-16T10-00-00.000.log":    line("old", "ResponseComplete"),
		"audit-2026-11-15T10-00-00.000.log.gz": packed.String(),
		"audit-of-something-else.txt":          line("elsewhere", "ResponseComplete"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := filepath.Join(dir, "audit.log")
	a := &v1.ArchivedObject{Spec: v1.ArchivedObjectSpec{Kind: "ConfigMap", Name: "a", RequestedBy: "jo", Actor: "jo"}}
	for _, id := range []string{"new", "old", "oldest"} {
		a.Spec.RequestID = id
		r, err := findRequest(a, log)
		if err != nil || string(r.Event)+"\n" != line(id, "ResponseComplete") {
			t.Errorf("%s: %v %s", id, err, r.Event)
			continue
		}
		var out strings.Builder
		if r.write(&printer{out: &out}); !strings.Contains(out.String(), "Request:    "+id+"\nUser:       jo\n") || !strings.Contains(out.String(), "From:       192.0.2.7\n") {
			t.Errorf("printed %q", out.String())
		}
	}
	for id, want := range map[string]string{"elsewhere": "do not have the request elsewhere", "": "the server did it by itself (jo)"} {
		a.Spec.RequestID = id
		if _, err := findRequest(a, log); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", id, err)
		}
	}
	a.Spec.RequestID = "unlogged"
	if r, err := findRequest(a, ""); err != nil || r.Event != nil || r.RequestID != "unlogged" {
		t.Errorf("without a log: %+v, %v", r, err)
	}
}
