package server

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestStatus: each part tells its own, the right to get the status is enough, and a user without it
// learns nothing.
func TestStatus(t *testing.T) {
	t.Parallel()
	p := &people{running: start(t, Config{Data: t.TempDir()})}
	defer p.stop()
	jane := p.add("jane")
	read := func() ([]byte, error) { return jane.RESTClient().Get().AbsPath(StatusPath).DoRaw(t.Context()) }
	if body, err := read(); !apierrors.IsForbidden(err) {
		t.Errorf("without a right: %s, %v", body, err)
	}
	rule := rbacv1.PolicyRule{NonResourceURLs: []string{StatusPath}, Verbs: []string{"get"}}
	_, err := p.client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "status"}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	p.must(err)
	_, err = p.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "status"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "status"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jane"}},
	}, metav1.CreateOptions{})
	p.must(err)
	var body []byte
	dbtest.Await(t, "the right holds", func() bool {
		body, err = read()
		return err == nil
	})
	var got Status
	p.must(json.Unmarshal(body, &got))
	if got.Version != "test" || got.Database.Engine != "sqlite" || got.Database.Bytes == 0 || len(got.Replicas) != 1 || len(got.Certificates) < 2 ||
		!slices.ContainsFunc(got.Queues, func(q Queue) bool { return q.Name == "objects" }) || len(got.Problems)+len(got.NotReady) > 0 {
		t.Errorf("the status is %s", body)
	}
}

// TestStatusOfABrokenPart: what a part cannot tell is a problem, and hides nothing of the others.
func TestStatusOfABrokenPart(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	s := &server{parts: []part{
		{name: "first", check: func(context.Context) error { return down }, status: func(context.Context, *Status) error { return down }},
		{name: "second", check: func(context.Context) error { return nil }, status: func(_ context.Context, all *Status) error {
			all.Replicas = []string{"127.0.0.1"}
			return nil
		}},
	}}
	got := s.status(t.Context())
	if !slices.Equal(got.NotReady, []string{"first"}) || !slices.Equal(got.Problems, []string{"first: down"}) || len(got.Replicas) != 1 {
		t.Errorf("the status is %+v", got)
	}
	// Without a database no part can tell anything, and that is said once.
	s.parts[0].name = databasePart
	got = s.status(t.Context())
	if want := "the database does not answer, so nothing else is known: down"; !slices.Equal(got.Problems, []string{want}) || got.Replicas != nil {
		t.Errorf("without a database the status is %+v", got)
	}
}

// TestZPages: /statusz names the release, and /flagz the settings in force, with secrets masked.
func TestZPages(t *testing.T) {
	r := start(t, Config{Data: filepath.Join(t.TempDir(), "data"), Settings: []Setting{{Name: "listen", Value: "here"}, {Name: "database", Value: "***", Raw: "secret"}}})
	for path, want := range map[string]string{"/statusz": `Binary version\W+1\.` + api.KubernetesMinor, "/flagz": `listen\W+here`} { // the library picks a delimiter at random
		text, err := r.client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "text/plain").DoRaw(t.Context())
		if err != nil || !regexp.MustCompile(want).Match(text) || strings.Contains(string(text), "secret") {
			t.Errorf("%s: %v: %s", path, err, text)
		}
	}
	r.stop()
}
