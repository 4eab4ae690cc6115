package server

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/access/registrytoken"
)

// TestRegistryAudit: deletions in the registry are recorded without a policy; with one
// pushes and denials are too; and no password or token is written.
func TestRegistryAudit(t *testing.T) {
	for _, rules := range []string{"", "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: None\n  verbs: [get, list]\n  userGroups: [system:masters]\n- level: Metadata\n"} {
		dir := t.TempDir()
		o := auditlog.Options{LogPath: filepath.Join(dir, "audit.log")}
		if rules != "" {
			o.PolicyFile = filepath.Join(dir, "policy.yaml")
			if err := os.WriteFile(o.PolicyFile, []byte(rules), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w := newTokenWorld(t, Config{Audit: o})
		token := w.bearer(w.admin(), "repository:shop/web:pull,delete")
		w.want(401, "Bearer planted-secret", "GET", manifest)
		w.want(401, basicHeader("planted-secret"), "DELETE", manifest)
		w.want(202, token, "DELETE", manifest)
		w.stop()
		text, err := os.ReadFile(o.LogPath)
		if err != nil {
			t.Fatal(err)
		}
		planted := []string{"planted-secret", strings.TrimPrefix(basicHeader("planted-secret"), "Basic "), strings.TrimPrefix(w.admin(), "Basic "), strings.TrimPrefix(token, "Bearer ")}
		for _, secret := range planted {
			if strings.Contains(string(text), secret) {
				t.Errorf("the log has %.20s…", secret)
			}
		}
		got := map[string]int{}
		for line := range strings.Lines(string(text)) {
			var e auditv1.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			if e.Stage == auditv1.StageResponseComplete && e.ObjectRef != nil && e.ObjectRef.Namespace == "shop" && e.ObjectRef.Name == "web" {
				got[strings.Join([]string{e.User.Username, e.Verb, e.ObjectRef.Resource + "/" + e.ObjectRef.Subresource, fmt.Sprint(e.ResponseStatus.Code)}, " ")]++
			}
		}
		want := []string{"exeunt-admin delete repositories/manifests 202", "system:anonymous delete repositories/manifests 401"}
		if rules != "" {
			want = append(want, "exeunt-admin update repositories/manifests 201", "system:anonymous get repositories/manifests 401")
		}
		for _, line := range want {
			if got[line] == 0 {
				t.Errorf("%q: no event %q in %v", rules, line, got)
			}
		}
		if rules == "" && len(got) != len(want) {
			t.Errorf("without a policy the log has %v, want %v", got, want)
		}
		if strings.Contains(string(text), registrytoken.Path+"?") {
			t.Error("requests for tokens are in the log")
		}
	}
}
