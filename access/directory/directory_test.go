package directory_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/policy"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// replica is a store with a directory that follows it.
type replica struct {
	store     *store.Store
	directory *directory.Directory
	writer    objects.Writer
}

func newReplica(t *testing.T, st *store.Store) *replica {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	r := &replica{store: st, directory: directory.New(st, log)}
	r.writer = objects.Writer{Store: st, Kinds: kind.NewRegistry(builtin.Kinds())}
	if err := r.directory.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.Background(t, r.directory.Run)
	storetest.Background(t, (&policy.Aggregator{Directory: r.directory, Writer: r.writer, Logger: log}).Run)
	return r
}

// replicas are two directories on one database: of two stores on PostgreSQL, of one on
// SQLite, which has one process.
func replicas(t *testing.T, engine sqldb.Engine) [2]*replica {
	database := dbtest.Open(t, engine)
	one := storetest.Run(t, store.Options{DB: dbtest.Connect(t, database)})
	if engine == sqldb.SQLite {
		return [2]*replica{newReplica(t, one), newReplica(t, one)}
	}
	return [2]*replica{newReplica(t, one), newReplica(t, storetest.Run(t, store.Options{DB: dbtest.Connect(t, database)}))}
}

func (r *replica) may(verb, resource string) bool {
	d, _, _ := r.directory.Roles().Authorize(context.Background(), authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "bob"}, Verb: verb, Resource: resource, ResourceRequest: true,
	})
	return d == authorizer.DecisionAllow
}

// until waits for both replicas.
func until(t *testing.T, both [2]*replica, what string, ok func(*replica) bool) {
	t.Helper()
	for _, r := range both {
		dbtest.Await(t, "both have seen "+what, func() bool { return ok(r) })
	}
}

// TestReplicasFollow: both replicas enforce what one of them writes. One of them writes
// the rules of an aggregated role, and the role grants its rights on both.
func TestReplicasFollow(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			both := replicas(t, engine)
			roles, bindings := rbacv1.SchemeGroupVersion.WithResource("clusterroles"), rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
			label := map[string]string{"to-sum": "true"}
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(both[0].writer.Create(t.Context(), roles, &rbacv1.ClusterRole{
				ObjectMeta:      metav1.ObjectMeta{Name: "sum"},
				AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: label}}},
			}))
			must(both[1].writer.Create(t.Context(), bindings, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sum"},
				Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "bob"}},
			}))
			for _, r := range both {
				if r.may("get", "pods") {
					t.Fatal("bob may read pods")
				}
			}
			must(both[0].writer.Create(t.Context(), roles, &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: "part", Labels: label},
				Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
			}))
			until(t, both, "the aggregated right", func(r *replica) bool { return r.may("get", "pods") })
			until(t, both, "the rules are stored", func(r *replica) bool {
				obj, err := r.writer.Get(t.Context(), roles, "", "sum")
				return err == nil && len(obj.(*rbacv1.ClusterRole).Rules) == 1
			})
			if both[0].may("delete", "pods") {
				t.Error("bob may delete pods")
			}
			_, err := both[1].store.Delete(t.Context(), store.DeleteRequest{Key: object.Key{Kind: "clusterroles.rbac.authorization.k8s.io", Name: "part"}})
			must(err)
			until(t, both, "the right is gone", func(r *replica) bool { return !r.may("get", "pods") })
		})
	}
}

// TestReconcile: a start creates the default roles, a second start writes nothing, and
// changes of an administrator stay if the role is annotated so.
func TestReconcile(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		st := storetest.Run(t, store.Options{DB: db})
		r := &replica{store: st, directory: directory.New(st, slog.New(slog.DiscardHandler)), writer: objects.Writer{Store: st, Kinds: kind.NewRegistry(builtin.Kinds())}}
		for _, name := range []string{"kube-system", "kube-public"} {
			namespaced(t, r, name)
		}
		start := func() int64 {
			t.Helper()
			for range 2 { // as a server does: read, write, read
				if err := r.directory.Load(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := policy.Reconcile(t.Context(), r.writer, r.directory.Roles().Objects(), slog.New(slog.DiscardHandler)); err != nil {
					t.Fatal(err)
				}
			}
			return st.Revision()
		}
		first := start()
		if again := start(); again != first {
			t.Errorf("the second start wrote %d objects", again-first)
		}
		roles := rbacv1.SchemeGroupVersion.WithResource("clusterroles")
		for name, change := range map[string]func(*rbacv1.ClusterRole){
			"system:basic-user": func(r *rbacv1.ClusterRole) { r.Rules = nil },
			"system:discovery": func(r *rbacv1.ClusterRole) {
				r.Rules, r.Annotations[rbacv1.AutoUpdateAnnotationKey] = nil, "false"
			},
		} {
			old, err := r.writer.Get(t.Context(), roles, "", name)
			if err != nil {
				t.Fatal(err)
			}
			next := old.DeepCopyObject().(*rbacv1.ClusterRole)
			change(next)
			if err := r.writer.Update(t.Context(), roles, next, old); err != nil {
				t.Fatal(err)
			}
		}
		start()
		found := r.directory.Roles().Objects().ClusterRoles
		if len(found["system:basic-user"].Rules) == 0 {
			t.Error("a default role was not restored")
		}
		if len(found["system:discovery"].Rules) != 0 {
			t.Error("a role with autoupdate false was restored")
		}
	})
}

func namespaced(t *testing.T, r *replica, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := r.writer.Create(t.Context(), corev1.SchemeGroupVersion.WithResource("namespaces"), ns); err != nil {
		t.Fatal(err)
	}
}

// TestLoadAgain: what was removed while the directory did not follow is gone after it has read all again. A token that
// two Users have identifies neither.
func TestLoadAgain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		st := storetest.Run(t, store.Options{DB: db})
		d := directory.New(st, slog.New(slog.DiscardHandler))
		user := func(name string) object.Key { return object.Key{Kind: "users.access.exeunt.dev", Name: name} }
		put := func(name string) {
			storetest.Create(t, st, storetest.Object(t, user(name), `,"spec":{"tokens":[{"name":"a","sha256":"shared"},{"name":"b","sha256":"of-`+name+`"}]}`))
		}
		account := object.Key{Kind: "serviceaccounts", Namespace: "n", Name: "a"}
		storetest.Create(t, st, storetest.Object(t, account, ""))
		put("jane")
		for _, step := range []struct {
			do                   func()
			own, shared, account bool
		}{
			{func() {}, true, true, true},
			{func() { put("eve") }, true, false, true},
			{func() {
				for _, key := range []object.Key{user("jane"), account} {
					if _, err := st.Delete(t.Context(), store.DeleteRequest{Key: key}); err != nil {
						t.Fatal(err)
					}
				}
			}, false, true, false},
		} {
			step.do()
			if err := d.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			own, _ := d.UserByToken("of-jane")
			shared, _ := d.UserByToken("shared")
			if (own != nil) != step.own || (shared != nil) != step.shared || (d.Account("n", "a") != "") != step.account || (d.User("jane") != nil) != step.own {
				t.Errorf("jane by her token: %v, by the shared one: %v, account %q", own, shared, d.Account("n", "a"))
			}
		}
	})
}

// TestUnreadable: a role that can no longer be read gives no rights, after a change as after a start, and other roles do. A
// directory that missed what is compacted reads all again.
func TestUnreadable(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		st := storetest.Run(t, store.Options{DB: db, KeepRevisions: 1, CompactEvery: time.Millisecond, RingEvents: 1})
		roleKey := func(name string) object.Key {
			return object.Key{Kind: "clusterroles.rbac.authorization.k8s.io", Name: name}
		}
		for name, resource := range map[string]string{"one": "pods", "two": "secrets"} {
			storetest.Create(t, st, storetest.Object(t, roleKey(name), `,"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["`+resource+`"]}]`))
			storetest.Create(t, st, storetest.Object(t, object.Key{Kind: "clusterrolebindings.rbac.authorization.k8s.io", Name: name},
				`,"roleRef":{"kind":"ClusterRole","name":"`+name+`"},"subjects":[{"kind":"User","name":"bob"}]`))
		}
		account := object.Key{Kind: "serviceaccounts", Namespace: "n", Name: "a"}
		storetest.Create(t, st, storetest.Object(t, account, ""))
		open := func() *replica {
			r := &replica{store: st, directory: directory.New(st, slog.New(slog.DiscardHandler))}
			if err := r.directory.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			return r
		}
		follows, late := open(), open()
		storetest.Background(t, follows.directory.Run)
		both := [2]*replica{follows, follows}
		until(t, both, "two roles", func(r *replica) bool { return r.may("get", "pods") && r.may("get", "secrets") })
		before := st.Revision()
		o, m := storetest.Get(t, st, roleKey("one"))
		body, err := object.WithMeta([]byte(`{"metadata":{"name":"x"},"rules":"none"}`), m)
		if err == nil {
			_, err = st.Update(t.Context(), store.UpdateRequest{Key: o.Key, IfRevision: o.Revision, Meta: m, Body: body})
		}
		if err == nil {
			_, err = st.Delete(t.Context(), store.DeleteRequest{Key: account})
		}
		if err != nil {
			t.Fatal(err)
		}
		gone := func(r *replica) bool {
			return !r.may("get", "pods") && r.may("get", "secrets") && r.directory.Account("n", "a") == ""
		}
		until(t, both, "one role that cannot be read, and no account", gone)
		if !gone(open()) {
			t.Error("a start gives the rights of a role that cannot be read")
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if _, err := st.Watch(t.Context(), store.WatchRequest{Kind: "clusterroles.rbac.authorization.k8s.io", From: before}); object.Is(err, object.Expired) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("nothing is compacted")
			}
			storetest.Update(t, st, roleKey("two"), lifecycle.Rules{}, func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": time.Now().String()} })
		}
		storetest.Background(t, late.directory.Run)
		until(t, [2]*replica{late, late}, "what was compacted", gone)
	})
}
