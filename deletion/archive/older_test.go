package archive

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/store/storetest"
)

const (
	olderContainer = `{"name":"x","image":"x"}`
	olderTemplate  = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[` + olderContainer + `],"restartPolicy":"RESTART"}}`
)

// older are objects as earlier versions stored them: without fields and labels that were added later. UID is
// the uid of the object.
var older = map[string]string{
	"pods:n/o":                     `,"spec":{"containers":[` + olderContainer + `]},"status":{"phase":"Pending"}`,
	"services:n/o":                 `,"spec":{"type":"NodePort","clusterIP":"10.96.0.77","ports":[{"port":80,"nodePort":30123}]},"status":{"loadBalancer":{}}`,
	"jobs.batch:n/o":               `,"spec":{"selector":{"matchLabels":{"controller-uid":"UID"}},` + strings.Replace(strings.Replace(olderTemplate, "RESTART", "Never", 1), `"a":"b"`, `"controller-uid":"UID","job-name":"o"`, 1) + `},"status":{"succeeded":1}`,
	"deployments.apps:n/o":         `,"spec":{"selector":{"matchLabels":{"a":"b"}},` + strings.Replace(olderTemplate, "RESTART", "Always", 1) + `},"status":{"replicas":1}`,
	"persistentvolumeclaims:n/o":   `,"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"volumeName":"pv"},"status":{"phase":"Bound"}`,
	"widgets.undo.example.com:n/o": `,"spec":{"color":"red","dropped":"by today's schema"},"status":{"ready":true}`,
}

// TestOlderObjects: what an earlier version archived comes back, and the dry run shows exactly what changes.
func TestOlderObjects(t *testing.T) {
	each(t, func(w *world) {
		w.serveUndoKinds()
		for name, fields := range older {
			key := keyOf(name)
			r := storetest.Object(w, key, fields, func(m *metav1.ObjectMeta) { m.Generation = 3 })
			r.Body = []byte(strings.ReplaceAll(string(r.Body), `"UID"`, fmt.Sprintf("%q", r.Meta.UID)))
			r.InNamespace = true
			was := storetest.Create(w, w.store, r)
			w.delete(was, background)
			dry := w.restore(v1.RestoreSpec{UID: was.UID, DryRun: true})
			status := w.restore(v1.RestoreSpec{UID: was.UID})
			if diff := cmp.Diff(dry.Results, status.Results); diff != "" {
				w.Errorf("%s: the dry run (-) differs from the run (+):\n%s", name, diff)
			}
			if status.Created != 1 {
				w.Errorf("%s: %+v", name, status.Results)
				continue
			}
			is, m := w.get(name)
			differ, err := v1.Changes(was.Body, is.Body)
			if err != nil {
				w.Fatal(err)
			}
			if diff := cmp.Diff(differ, status.Results[0].Changes); diff != "" {
				w.Errorf("%s: the diff (-) is not in the results (+):\n%s", name, diff)
			}
			if len(differ) == 0 || slices.ContainsFunc(differ, func(c v1.Change) bool { return c.Was != "" && c.Field != "spec.dropped" }) {
				w.Errorf("%s: what was set has changed, or nothing was added: %v", name, differ)
			}
			if m.UID != was.UID || m.Generation != 3 {
				w.Errorf("%s came back as %+v", name, m)
			}
		}
	})
}
