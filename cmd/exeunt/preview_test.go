package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func item(kind, name string, uid, owner types.UID, action v1.Action, reason string) v1.Item {
	return v1.Item{
		ObjectReference: v1.ObjectReference{Kind: kind, Namespace: "shop", Name: name, UID: uid},
		Owner:           owner, Action: action, Reason: reason,
	}
}

func TestWritePreview(t *testing.T) {
	t.Parallel()
	policy := metav1.DeletePropagationForeground
	held := item("ConfigMap", "state", "3", "1", v1.Block, "held by finalizer example.com/x")
	shaky := item("ReplicaSet", "web-1", "2", "1", v1.Wait, "waits for dependents that block it")
	shaky.Uncertain = true
	elsewhere := item("Secret", "s", "5", "4", v1.Delete, "owned by Pod p")
	elsewhere.Namespace = "other"
	p := &v1.DeletionPreview{
		Spec: v1.DeletionPreviewSpec{PropagationPolicy: &policy},
		Status: v1.DeletionPreviewStatus{
			Object: v1.ObjectReference{Kind: "Deployment", Namespace: "shop", Name: "web", UID: "1"}, Total: 7,
			Counts: []v1.Count{
				{Kind: "ConfigMap", Action: v1.Block, Count: 1}, {Kind: "Deployment", Action: v1.Wait, Count: 1},
				{Kind: "ReplicaSet", Action: v1.Wait, Count: 1}, {Kind: "Pod", Action: v1.Delete, Count: 4},
			},
			Blockers: []v1.Item{held}, BlockersTotal: 3,
			Items: []v1.Item{
				item("Deployment", "web", "1", "2", v1.Wait, "waits for dependents that block it"), // in a circle
				shaky, held, item("Pod", "p", "4", "2", v1.Delete, "owned by ReplicaSet web-1"), elsewhere,
			},
		},
	}
	want := `Deleting Deployment web in namespace shop (foreground) touches 7 objects. Nothing has been deleted.

       1 will block           1 ConfigMap
       2 will wait for others 1 Deployment, 1 ReplicaSet
       4 will be deleted      4 Pod

What blocks:
  ConfigMap state in namespace shop: held by finalizer example.com/x
  and 2 more

Deployment web  Wait: waits for dependents that block it
├─ ReplicaSet web-1  Wait?: waits for dependents that block it
│  └─ Pod p  Delete: owned by ReplicaSet web-1
│     └─ Secret other/s  Delete: owned by Pod p
└─ ConfigMap state  Block: held by finalizer example.com/x
and 2 more; --lines 0 shows all
`
	var b strings.Builder
	if writePreview(&printer{out: &b}, p); b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestWriteRest: what more lines would show and what the client may not get are two numbers.
func TestWriteRest(t *testing.T) {
	t.Parallel()
	root := item("Deployment", "web", "1", "", v1.Delete, "the object itself")
	for name, test := range map[string]struct {
		total, hidden int64
		next, want    string
	}{
		"all":               {1, 0, "", ""},
		"more lines":        {3, 0, "token", "and 2 more; --lines 0 shows all\n"},
		"hidden":            {2, 1, "", "and 1 that you may not get\n"},
		"hidden, and lines": {4, 1, "token", "and 2 more; --lines 0 shows those that you may get\nand 1 that you may not get\n"},
	} {
		var b strings.Builder
		writeItems(&printer{out: &b}, &v1.DeletionPreviewStatus{Object: root.ObjectReference, Total: test.total, Hidden: test.hidden, Continue: test.next, Items: []v1.Item{root}})
		if _, got, _ := strings.Cut(b.String(), "\n"); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestWriteRefused: a preview of a delete that the server would refuse says so, and
// so does the last line of "why".
func TestWriteRefused(t *testing.T) {
	t.Parallel()
	p := &v1.DeletionPreview{Status: v1.DeletionPreviewStatus{
		Object: v1.ObjectReference{Kind: "Namespace", Name: "default"}, Action: v1.Keep, Refused: "this namespace may not be deleted", Total: 1,
		Counts: []v1.Count{{Kind: "Namespace", Action: v1.Keep, Count: 1}},
	}}
	var preview, why strings.Builder
	writePreview(&printer{out: &preview}, p)
	writeTaken(&printer{out: &why}, p)
	if want := "The server would refuse to delete Namespace default: this namespace may not be deleted. Nothing has been deleted.\n"; preview.String() != want {
		t.Errorf("preview: %q; want %q", preview.String(), want)
	}
	if want := "The server would refuse to delete it: this namespace may not be deleted.\n"; why.String() != want {
		t.Errorf("why: %q; want %q", why.String(), want)
	}
}

func TestReportText(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	since := metav1.NewTime(now.Add(-90 * time.Second))
	object := v1.ObjectReference{Kind: "Deployment", Namespace: "shop", Name: "web"}
	for name, test := range map[string]struct {
		status v1.DeletionReportStatus
		want   string
	}{
		"a tree": {
			v1.DeletionReportStatus{Object: object, Exists: true, State: v1.Deleting, Remaining: 1, Truncated: true, Reasons: []v1.Reason{
				{Type: v1.ReasonBlockingDependents, Message: "blocked by 1 dependent", Resolve: "see below", Children: []v1.Reason{
					{Type: v1.ReasonDependent, Message: "Pod p is being deleted", Since: &since},
				}},
				{Type: v1.ReasonReview, Message: "the collector is at work on it"},
			}},
			`Deployment web in namespace shop is DELETING.
1 object to go first.
├─ BlockingDependents: blocked by 1 dependent
│  to resolve: see below
│  └─ Dependent: Pod p is being deleted (since 1m30s)
└─ Review: the collector is at work on it
There is more below that is not shown.
`,
		},
		"nothing holds it": {
			v1.DeletionReportStatus{Object: object, Exists: true, State: v1.Deleting},
			"Deployment web in namespace shop is DELETING.\nNothing holds it: it is about to go.\n",
		},
		"gone": {
			v1.DeletionReportStatus{Object: object, State: v1.DoesNotExist},
			"Deployment web in namespace shop does not exist.\n",
		},
		"active": {
			v1.DeletionReportStatus{Object: object, Exists: true, State: v1.Active},
			"Deployment web in namespace shop is ACTIVE: it is not being deleted.\n",
		},
	} {
		if got := reportText(&test.status, now); got != test.want {
			t.Errorf("%s: got\n%swant\n%s", name, got, test.want)
		}
	}
}

// TestReportTextWithoutTime: the text that --watch compares does not depend on the time.
func TestReportTextWithoutTime(t *testing.T) {
	t.Parallel()
	text := func(left string, since time.Time) string {
		at := metav1.NewTime(since)
		return reportText(&v1.DeletionReportStatus{State: v1.Deleting, Reasons: []v1.Reason{
			{Type: v1.ReasonGracePeriod, Message: left + " left", Since: &at},
		}}, time.Time{})
	}
	if a, b := text("20s", time.Unix(1, 0)), text("19s", time.Unix(2, 0)); a != b {
		t.Errorf("%q differs from %q", a, b)
	}
}

func TestParseCascade(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]metav1.DeletionPropagation{"background": "Background", "Foreground": "Foreground", "orphan": "Orphan"} {
		if got, err := parseCascade(word); err != nil || *got != want {
			t.Errorf("%s: got %v, %v", word, got, err)
		}
	}
	if got, err := parseCascade(""); got != nil || err != nil {
		t.Errorf("nothing: got %v, %v", got, err)
	}
	if _, err := parseCascade("true"); err == nil || err.Error() != `--cascade "true": want background, foreground or orphan` {
		t.Errorf("got %v", err)
	}
}

func TestNoKubeconfig(t *testing.T) {
	home := t.TempDir()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", home)
	t.Chdir(home)
	for _, cmd := range []struct {
		args []string
		want string
	}{
		{[]string{"pod/a"}, "no kubeconfig: $KUBECONFIG is not set, and neither data/kubeconfig nor " + filepath.Join(home, ".kube/config") +
			` exists; "exeunt serve" writes one to data/kubeconfig: name it with --kubeconfig FILE`},
		{[]string{"pod/a", "-o", "wide"}, `-o "wide": want json, yaml, name, or leave it out for text`},
	} {
		for _, c := range []interface {
			SetArgs([]string)
			Execute() error
		}{newPreview(), newWhy()} {
			c.SetArgs(cmd.args)
			if err := c.Execute(); err == nil || err.Error() != cmd.want {
				t.Errorf("%v: got %v, want %s", cmd.args, err, cmd.want)
			}
		}
	}
}
