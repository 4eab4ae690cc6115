package server

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	archivev1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestExpiry: objects whose time is over leave a real server as a client's delete does: with their
// dependents, with the guard, and with a way back. So do finished Jobs.
func TestExpiry(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			p := &people{running: start(t, Config{Data: filepath.Join(t.TempDir(), "data"), Database: dbtest.Open(t, engine), ArchiveFor: time.Hour})}
			defer p.stop()
			ctx, maps := t.Context(), p.client.CoreV1().ConfigMaps("default")
			over := map[string]string{lifecycle.ExpiresAt: "2020-01-01T00:00:00Z"}
			owner, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
			p.must(err)
			_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dependent", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID},
			}}}, metav1.CreateOptions{})
			p.must(err)
			_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later", Annotations: map[string]string{lifecycle.TTL: "1d"}}}, metav1.CreateOptions{})
			p.must(err)
			owner.Annotations = over
			_, err = maps.Update(ctx, owner, metav1.UpdateOptions{})
			p.must(err)
			dbtest.Await(t, "the owner and its dependent expire", func() bool {
				all, err := maps.List(ctx, metav1.ListOptions{})
				p.must(err)
				return !strings.Contains(names(all.Items), "owner") && !strings.Contains(names(all.Items), "dependent")
			})
			var restored archivev1.Restore
			body, err := p.client.RESTClient().Post().AbsPath("/apis/lifecycle.exeunt.dev/v1/restores").Body(
				[]byte(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","metadata":{"generateName":"r-"},"spec":{"cascade":"` + string(owner.UID) + `"}}`)).DoRaw(ctx)
			p.must(err)
			p.must(json.Unmarshal(body, &restored))
			if !restored.Status.Complete || restored.Status.Created != 2 {
				t.Errorf("the restore of what expired: %+v", restored.Status)
			}
			p.wantJobsExpire()
			p.wantRightToExpire()
			if _, err := maps.Get(ctx, "owner", metav1.GetOptions{}); err != nil {
				t.Errorf("what came back after its time goes again: %v", err)
			}
			if _, err := maps.Get(ctx, "later", metav1.GetOptions{}); err != nil {
				t.Errorf("an object goes before its time: %v", err)
			}
		})
	}
}

func names(all []corev1.ConfigMap) string {
	var names []string
	for _, o := range all {
		names = append(names, o.Name)
	}
	return strings.Join(names, " ")
}

// wantJobsExpire finishes a Job, whose Pods go first.
func (p *people) wantJobsExpire() {
	p.t.Helper()
	ctx, jobs := p.t.Context(), p.client.BatchV1().Jobs("default")
	now, zero := metav1.Now(), int32(0)
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	job, err := jobs.Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "import"}, Spec: batchv1.JobSpec{TTLSecondsAfterFinished: &zero, Template: template},
	}, metav1.CreateOptions{})
	p.must(err)
	job.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1, Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now},
	}}
	_, err = jobs.UpdateStatus(ctx, job, metav1.UpdateOptions{})
	p.must(err)
	dbtest.Await(p.t, "the finished Job expires", func() bool {
		_, err := jobs.Get(ctx, "import", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// wantRightToExpire: a client that may not delete an object cannot make it expire, and may keep it.
func (p *people) wantRightToExpire() {
	p.t.Helper()
	ctx := p.t.Context()
	editor := p.add("editor")
	_, err := p.client.RbacV1().Roles("default").Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "patch"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"patch"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
	}}, metav1.CreateOptions{})
	p.must(err)
	_, err = p.client.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "patch"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "patch"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "editor"}},
	}, metav1.CreateOptions{})
	p.must(err)
	patch := func(annotation, value string) error {
		body := `{"metadata":{"annotations":{"` + annotation + `":` + value + `}}}`
		_, err := editor.CoreV1().ConfigMaps("default").Patch(ctx, "later", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	dbtest.Await(p.t, "the editor may keep it", func() bool { return patch(lifecycle.KeepUntil, `"2199-01-01T00:00:00Z"`) == nil })
	for annotation, value := range map[string]string{lifecycle.ExpiresAt: `"2020-01-01T00:00:00Z"`, lifecycle.TTL: `"1s"`, lifecycle.KeepUntil: "null"} {
		err := patch(annotation, value)
		if annotation != lifecycle.KeepUntil { // it is kept, so it does not expire earlier
			p.must(err)
			continue
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot make an object expire that you cannot delete") {
			p.t.Errorf("%s to %s: %v", annotation, value, err)
		}
	}
	if err := patch(lifecycle.TTL, `"soon"`); !apierrors.IsInvalid(err) {
		p.t.Errorf("a ttl that means nothing: %v", err)
	}
}

// TestExpiryPolicy: a policy of a real server takes what it selects once it is started, which an editor may not do. An editor
// writes policies only about what the role lets it list and delete.
func TestExpiryPolicy(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			p := &people{running: start(t, Config{Data: filepath.Join(t.TempDir(), "data"), Database: dbtest.Open(t, engine), ArchiveFor: time.Hour})}
			defer p.stop()
			ctx, maps := t.Context(), p.client.CoreV1().ConfigMaps("default")
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "old", Labels: map[string]string{"tmp": "yes"}}}, metav1.CreateOptions{})
			p.must(err)
			editor := p.add("editor")
			_, err = p.client.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "edit"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "edit"},
				Subjects: []rbacv1.Subject{{Kind: "User", Name: "editor"}},
			}, metav1.CreateOptions{})
			p.must(err)
			const group, path = "/apis/lifecycle.exeunt.dev/v1", "/apis/lifecycle.exeunt.dev/v1/namespaces/default/expirypolicies"
			create := func(name, resource string) error {
				return editor.RESTClient().Post().AbsPath(path).Body([]byte(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"ExpiryPolicy","metadata":{"name":"` + name +
					`"},"spec":{"resources":["` + resource + `"],"selector":{"matchLabels":{"tmp":"yes"}},"expire":{"after":"0s"}}}`)).Do(ctx).Error()
			}
			dbtest.Await(t, "the editor may write a policy", func() bool { return create("tmp", "configmaps") == nil })
			if err := create("roles", "roles.rbac.authorization.k8s.io"); !apierrors.IsForbidden(err) {
				t.Errorf("the policy of an editor about roles: %v", err)
			}
			if err := create("wrong", "events"); !apierrors.IsInvalid(err) {
				t.Errorf("a policy about Events: %v", err)
			}
			begin := []byte(`{"metadata":{"annotations":{"` + lifecycle.StartExpiry + `":"1"}}}`)
			patch := func(c *kubernetes.Clientset) error {
				return c.RESTClient().Patch(types.MergePatchType).AbsPath(path + "/tmp").Body(begin).Do(ctx).Error()
			}
			if err := patch(editor); !apierrors.IsForbidden(err) {
				t.Errorf("an editor starts a policy: %v", err)
			}
			var preview archivev1.ExpiryPreview
			ask := []byte(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"ExpiryPreview","spec":{"policy":"tmp","namespace":"default"}}`)
			body, err := editor.RESTClient().Post().AbsPath(group + "/expirypreviews").Body(ask).DoRaw(ctx)
			p.must(err)
			p.must(json.Unmarshal(body, &preview))
			if len(preview.Status.Objects) != 1 || preview.Status.Objects[0].Object.Name != "old" || preview.Status.Objects[0].Object.Kind != "ConfigMap" {
				t.Errorf("the preview: %+v", preview.Status)
			}
			p.must(patch(p.client))
			dbtest.Await(t, "the old ConfigMap expires", func() bool {
				_, err := maps.Get(ctx, "old", metav1.GetOptions{})
				return apierrors.IsNotFound(err)
			})
			dbtest.Await(t, "the status says so", func() bool {
				body, err := p.client.RESTClient().Get().AbsPath(path + "/tmp").DoRaw(ctx)
				p.must(err)
				return strings.Contains(string(body), `"taken":1`) && strings.Contains(string(body), `"state":"Started"`)
			})
			body, err = p.client.RESTClient().Get().AbsPath(group + "/namespaces/default/archivedobjects").DoRaw(ctx)
			p.must(err)
			if !strings.Contains(string(body), "system:exeunt:expiry:default/tmp") {
				t.Errorf("the archive does not name the policy: %s", body)
			}
			for i := 1; i < lifecycle.MostPolicies; i++ {
				p.must(create(fmt.Sprint("many-", i), "configmaps"))
			}
			if err := create("one-more", "configmaps"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "there are 100 expirypolicies") {
				t.Errorf("one policy more than there may be: %v", err)
			}
		})
	}
}
