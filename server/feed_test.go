package server

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestFeedOfOneChange: a server whose feed has room for one change does all that a server with a
// large feed does, while another client writes: everything that follows changes reads the log.
func TestFeedOfOneChange(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			r := start(t, Config{Data: filepath.Join(t.TempDir(), "data"), Database: dbtest.Open(t, engine), ringEvents: 1})
			defer r.stop()
			r.http.QPS = -1 // no limit
			var err error
			if r.client, err = kubernetes.NewForConfig(r.http); err != nil {
				t.Fatal(err)
			}
			defer r.churn()()
			for _, name := range []string{"a", "b"} {
				if _, err := r.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				// Controllers that follow namespaces and Secrets.
				dbtest.Await(t, "the namespace has its objects", func() bool {
					_, account := r.client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
					_, authority := r.client.CoreV1().ConfigMaps(name).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
					return account == nil && authority == nil
				})
			}
			r.watchAll()
			r.listPages()
			r.quotas()
			r.roles()
			r.cascade()
		})
	}
}

// churn writes Secrets until the returned function is called. Each write takes the place of the
// change before it in the feed.
func (r *running) churn() (stop func()) {
	done := make(chan struct{})
	var writer sync.WaitGroup
	secrets := r.client.CoreV1().Secrets("default")
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			name := fmt.Sprint("churn-", i)
			if _, err := secrets.Create(r.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				r.t.Errorf("create a Secret: %v", err)
				return
			}
			if err := secrets.Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
				r.t.Errorf("delete a Secret: %v", err)
				return
			}
		}
	})
	return func() { close(done); writer.Wait() }
}

func (r *running) configMap(in typedcorev1.ConfigMapInterface, name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	r.t.Helper()
	m, err := in.Create(r.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// watchAll: a watch that runs and one that begins late get the same changes, all of them.
func (r *running) watchAll() {
	r.t.Helper()
	maps := r.client.CoreV1().ConfigMaps("a")
	begin, err := maps.List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	follow := func() watch.Interface {
		w, err := maps.Watch(r.t.Context(), metav1.ListOptions{ResourceVersion: begin.ResourceVersion})
		if err != nil {
			r.t.Fatal(err)
		}
		return w
	}
	early := follow()
	defer early.Stop()
	var want []string
	for i := range 20 {
		m := r.configMap(maps, fmt.Sprint("w-", i))
		m.Data = map[string]string{"k": "v"}
		if _, err := maps.Update(r.t.Context(), m, metav1.UpdateOptions{}); err != nil {
			r.t.Fatal(err)
		}
		if err := maps.Delete(r.t.Context(), m.Name, metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
		want = append(want, "ADDED "+m.Name, "MODIFIED "+m.Name, "DELETED "+m.Name)
	}
	late := follow()
	defer late.Stop()
	for _, w := range []watch.Interface{early, late} {
		var got []string
		for e := range w.ResultChan() {
			m, ok := e.Object.(*corev1.ConfigMap)
			if !ok {
				r.t.Fatalf("the watch sent %v", e)
			}
			if got = append(got, fmt.Sprint(e.Type, " ", m.Name)); len(got) == len(want) {
				break
			}
		}
		if !slices.Equal(got, want) {
			r.t.Errorf("the watch sent %v, want %v", got, want)
		}
	}
}

// listPages: the pages of a list are of one revision, and a list after a write has it.
func (r *running) listPages() {
	r.t.Helper()
	maps := r.client.CoreV1().ConfigMaps("a")
	names := func(continueAt string, limit int64) (names []string, next string) {
		l, err := maps.List(r.t.Context(), metav1.ListOptions{Limit: limit, Continue: continueAt})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, m := range l.Items {
			names = append(names, m.Name)
		}
		return names, l.Continue
	}
	for i := range 9 {
		r.configMap(maps, fmt.Sprint("l-", i))
		if all, _ := names("", 0); len(all) != i+2 { // and the authority
			r.t.Fatalf("the list after %d creates has %v", i+1, all)
		}
	}
	want, _ := names("", 0)
	var got []string
	for page, next := names("", 3); ; page, next = names(next, 3) {
		if got = append(got, page...); next == "" {
			break
		}
		if err := maps.Delete(r.t.Context(), got[len(got)-1], metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
		r.configMap(maps, fmt.Sprint("m-", len(got)))
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("the pages have %v, want %v", got, want)
	}
}

// quotas: the second of two ConfigMaps beside the authority does not fit.
func (r *running) quotas() {
	r.t.Helper()
	hard := corev1.ResourceList{"count/configmaps": resource.MustParse("2")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	if _, err := r.client.CoreV1().ResourceQuotas("b").Create(r.t.Context(), quota, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	maps := r.client.CoreV1().ConfigMaps("b")
	for range 10 {
		m := r.configMap(maps, "fits")
		if _, err := maps.Create(r.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "over"}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			r.t.Fatalf("create above the quota: %v", err)
		}
		if err := maps.Delete(r.t.Context(), m.Name, metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// roles: a binding counts soon after it is created, and no longer when it is deleted.
func (r *running) roles() {
	r.t.Helper()
	bindings := r.client.RbacV1().RoleBindings("a")
	for range 3 {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"}}}
		if _, err := bindings.Create(r.t.Context(), binding, metav1.CreateOptions{}); err != nil {
			r.t.Fatal(err)
		}
		may := func() bool {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "eve",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "a", Verb: "list", Resource: "configmaps"}}}
			review, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(r.t.Context(), review, metav1.CreateOptions{})
			if err != nil {
				r.t.Fatal(err)
			}
			return review.Status.Allowed
		}
		dbtest.Await(r.t, "the binding counts", may)
		if err := bindings.Delete(r.t.Context(), "b", metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
		dbtest.Await(r.t, "the binding does not count", func() bool { return !may() })
	}
}

// cascade: the collector removes dependents of a removed owner, and empties a namespace.
func (r *running) cascade() {
	r.t.Helper()
	maps := r.client.CoreV1().ConfigMaps("a")
	owner := r.configMap(maps, "owner")
	for i := range 5 {
		r.configMap(maps, fmt.Sprint("d-", i), metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID})
	}
	if err := maps.Delete(r.t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
	dbtest.Await(r.t, "the dependents are collected", func() bool {
		_, err := maps.Get(r.t.Context(), "d-4", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if err := r.client.CoreV1().Namespaces().Delete(r.t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
	dbtest.Await(r.t, "the namespace is gone", func() bool {
		_, err := r.client.CoreV1().Namespaces().Get(r.t.Context(), "a", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
