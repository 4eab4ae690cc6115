package main

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// TestWriteTaken: of an ACTIVE object exeunt why says what would go with it: by kind, without the object itself and what
// would stay.
func TestWriteTaken(t *testing.T) {
	count := func(kind string, action v1.Action, n int64) v1.Count {
		return v1.Count{Kind: kind, Action: action, Count: n}
	}
	for name, test := range map[string]struct {
		namespace, refused string
		counts             []v1.Count
		want               string
	}{
		"alone":   {"shop", "", []v1.Count{count("ConfigMap", v1.Delete, 1), count("Secret", v1.Orphan, 4)}, "A delete would take nothing else with it.\n"},
		"refused": {"shop", "it is protected", []v1.Count{count("ConfigMap", v1.Delete, 3)}, "The server would refuse to delete it: it is protected.\n"},
		"with others": {"shop", "", []v1.Count{count("Pod", v1.Wait, 2), count("ConfigMap", v1.Delete, 3), count("Pod", v1.Block, 1), count("Secret", v1.Orphan, 4)},
			"A delete would take 5 other objects with it: 2 ConfigMap, 3 Pod. To see them: exeunt preview configmap/a -n shop\n"},
		"cluster-scoped": {"", "", []v1.Count{count("ConfigMap", v1.Delete, 1), count("Pod", v1.Delete, 1)},
			"A delete would take 1 other object with it: 1 Pod. To see them: exeunt preview configmap/a\n"},
	} {
		p := &v1.DeletionPreview{}
		p.Status.Object, p.Status.Refused, p.Status.Counts = v1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: test.namespace, Name: "a"}, test.refused, test.counts
		var out strings.Builder
		writeTaken(&printer{out: &out}, p)
		if out.String() != test.want {
			t.Errorf("%s: got %qwant %q", name, out.String(), test.want)
		}
	}
}

// TestAbsentText: of an object that does not exist exeunt why says when it was removed and how to restore it, if that
// is known.
func TestAbsentText(t *testing.T) {
	now := time.Date(2024, 5, 6, 7, 8, 9, 0, time.Local)
	since := metav1.NewTime(now.Add(-90 * time.Second))
	object := v1.ObjectReference{Kind: "ConfigMap", Namespace: "shop", Name: "a"}
	for want, reasons := range map[string][]v1.Reason{
		"ConfigMap a in namespace shop does not exist, and the archive has no object of this name: look for it with exeunt archive list": {{Type: v1.ReasonReview}},
		"ConfigMap a in namespace shop does not exist: jane deleted it":                                                                  {{Type: v1.ReasonReview}, {Type: v1.ReasonGone, Message: "jane deleted it"}, {Type: v1.ReasonGone, Message: "another"}},
		"ConfigMap a in namespace shop does not exist: jane deleted it at 2024-05-06 07:06:39, 1m30s ago; exeunt restore --uid 1":        {{Type: v1.ReasonGone, Message: "jane deleted it", Since: &since, Resolve: "exeunt restore --uid 1"}},
	} {
		if got := absentText(&v1.DeletionReportStatus{Object: object, Reasons: reasons}, now); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}
