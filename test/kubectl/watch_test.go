package kubectl_test

import (
	"regexp"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// TestGetWatch follows "kubectl get -w" line by line through an object's life.
func TestGetWatch(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		run(t, s, "create", "configmap", "before", "--from-literal=k=v")
		run(t, s, "label", "configmap", "before", "seen=yes")
		// The namespace also has the server's own ConfigMap.
		table := s.KubectlStart(t, "get", "configmaps", "--watch", "--field-selector", "metadata.name!=kube-root-ca.crt", "--output-watch-events")
		selected := s.KubectlStart(t, "get", "configmaps", "--watch", "-l", "seen=yes", "--output-watch-events")
		for _, p := range []*harness.Process{table, selected} {
			expect(t, p, `^EVENT +NAME +DATA +AGE$`)
			expect(t, p, `^ADDED +before +1 `)
		}
		run(t, s, "create", "configmap", "during")
		expect(t, table, `^ADDED +during +0 `)
		run(t, s, "label", "configmap", "during", "seen=yes")
		expect(t, table, `^MODIFIED +during +0 `)
		expect(t, selected, `^ADDED +during +0 `)
		run(t, s, "patch", "configmap", "before", "--type=merge", "-p", `{"data":{"l":"w"}}`)
		expect(t, table, `^MODIFIED +before +2 `)
		expect(t, selected, `^MODIFIED +before +2 `)
		// An object that no longer matches the selector appears as deleted.
		run(t, s, "label", "configmap", "during", "seen-")
		expect(t, table, `^MODIFIED +during +0 `)
		expect(t, selected, `^DELETED +during +0 `)
		run(t, s, "delete", "configmap", "during")
		expect(t, table, `^DELETED +during +0 `)
	})
}

func run(t *testing.T, s *harness.Server, args ...string) {
	t.Helper()
	if r := s.Kubectl(t, args...); r.Code != 0 {
		t.Fatalf("kubectl %v: exit code %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
	}
}

// expect reads the command's next line.
func expect(t *testing.T, p *harness.Process, pattern string) {
	t.Helper()
	line := p.Line(t)
	if !regexp.MustCompile(pattern).MatchString(line) {
		t.Fatalf("got line %q, want a match for %s", line, pattern)
	}
}
