package repository

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/registry/retain"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/imageuse"
	"github.com/exeunt/exeunt/store/storetest"
)

const policiesPath = "/apis/registry.exeunt.dev/v1/namespaces/shop/retentionpolicies"

// policy creates or replaces a policy, and starts it or not.
func (w *world) policy(name, spec string, start bool) {
	w.Helper()
	w.ask("DELETE", policiesPath+"/"+name, "")
	annotations := ""
	if start {
		annotations = `,"annotations":{"` + lifecycle.StartRetention + `":"1"}`
	}
	body := fmt.Sprintf(`{"apiVersion":"registry.exeunt.dev/v1","kind":"RetentionPolicy","metadata":{"name":%q%s},"spec":%s}`, name, annotations, spec)
	if a := w.ask("POST", policiesPath, body); a.Code != 201 {
		w.Fatalf("create policy %s: %d %s", spec, a.Code, a.Body)
	}
}

// retain applies the policies once.
func (w *world) retain() {
	w.Helper()
	if err := w.retention.RunOne(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) tags(path string) []string {
	w.Helper()
	list := w.Strings(`SELECT t.name FROM tags t JOIN repositories r ON r.id = t.repository_id WHERE r.path = $1`, path)
	slices.Sort(list)
	return list
}

func (w *world) wantTags(path, want string) {
	w.Helper()
	if got := strings.Join(w.tags(path), " "); got != want {
		w.Errorf("%s has the tags %q, not %q", path, got, want)
	}
}

// statusOf returns a field of the status of a policy.
func (w *world) statusOf(name, field string) string {
	w.Helper()
	o, err := w.store.Get(w.Context(), object.Key{Kind: "retentionpolicies.registry.exeunt.dev", Namespace: "shop", Name: name})
	if err != nil {
		w.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(append([]byte(`{"apiVersion":"v1","kind":"x",`), o.Body[1:]...)); err != nil {
		w.Fatal(err)
	}
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", field)
	return fmt.Sprint(value)
}

// TestRetention: a policy observes until it is started, and again when it changes; it takes what it has said; what is in use, by
// tag or digest, what is immutable and what another repository has stays; what it took can be undeleted.
func TestRetention(t *testing.T) {
	each(t, func(w *world) {
		w.now = time.Now().Add(time.Hour)
		for i := range 6 {
			w.push("shop/web", fmt.Sprint("pr-", i), fmt.Sprint(i))
			w.Exec(`UPDATE tags SET updated_at = $1 WHERE name = $2`, time.Now().Add(time.Duration(i-10)*time.Minute).UnixMilli(), fmt.Sprint("pr-", i))
		}
		w.push("shop/web", "main", "0")
		w.push("shop/other", "pr-0", "0")
		_, third, _ := image("3")
		w.annotate("shop", "web", lifecycle.ImmutableTags, "pr-0")
		w.deploy("fair", "one", "h.example/shop/web:pr-1")
		w.deploy("fair", "two", "h.example/shop/web@"+third)
		if err := w.update("shop", "web", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"clean": "yes"}) }); err != nil {
			t.Fatal(err)
		}
		spec := `{"selector":{"matchLabels":{"clean":"yes"}},"rules":[{"tags":["pr-*"],"keepLast":%d}]}`
		w.policy("pr", fmt.Sprintf(spec, 1), false)
		w.fails(w.retention.RunOne, "image_uses", "namespace shop: ")
		w.retain()
		w.wantTags("shop/web", "main pr-0 pr-1 pr-2 pr-3 pr-4 pr-5")
		if state, would := w.statusOf("pr", "state"), w.statusOf("pr", "wouldTake"); state != "Observing" || would != "2" {
			t.Errorf("it is %s, and would take %s", state, would)
		}
		plan, err := w.retention.Plan(w.Context(), "shop", "pr", 0)
		if lines := strings.Join(plan.Lines(), "\n"); err != nil || !strings.Contains(lines, "shop/web:pr-2 would go: policy pr, not among the last 1 by push") ||
			!strings.Contains(lines, "shop/web:pr-1 stays: in use") || !strings.Contains(lines, "shop/web:pr-0 stays: immutable") {
			t.Errorf("%s, %v", lines, err)
		}
		w.policy("pr", fmt.Sprintf(spec, 1), true)
		w.retain()
		w.wantTags("shop/web", "main pr-0 pr-1 pr-3 pr-5")
		w.wantTags("shop/other", "pr-0")
		if state, taken := w.statusOf("pr", "state"), w.statusOf("pr", "taken"); state != "Started" || taken != "2" {
			t.Errorf("it is %s, and took %s", state, taken)
		}
		if back, err := w.registry.Undelete(w.Context(), "shop/web", "pr-2", "", false); err != nil || len(back) != 1 {
			t.Errorf("undelete: %v, %v", back, err)
		}
		w.undeploy("fair", "one")
		w.retain()                                         // the archive could bring it back
		w.wantTags("shop/web", "main pr-0 pr-1 pr-2 pr-3") // what is back is the newest
		w.purge()
		w.forget()
		w.now = time.Now().Add(100 * time.Hour)
		w.retain()
		w.wantTags("shop/web", "main pr-0 pr-2 pr-3")

		u := w.ask("GET", policiesPath+"/pr", "").Body.String()
		if a := w.ask("PUT", policiesPath+"/pr", strings.Replace(u, `"keepLast":1`, `"keepLast":0`, 1)); a.Code != 200 {
			t.Fatalf("update: %d %s", a.Code, a.Body)
		}
		w.retain() // it is another generation than that which was started
		w.wantTags("shop/web", "main pr-0 pr-2 pr-3")
		if state := w.statusOf("pr", "state"); state != "Observing" {
			t.Errorf("a changed policy is %s", state)
		}
	})
}

// TestRetentionOfANamespace: tags that the Namespace makes immutable stay; a plan says how many would go, by one policy that is not started
// or by all; a policy counts beside those that are started; what was taken is told, with the time; a policy that cannot be read is refused.
func TestRetentionOfANamespace(t *testing.T) {
	each(t, func(w *world) {
		w.now = time.Now().Add(time.Hour)
		space := storetest.Namespace(w, "shop")
		space.Body = []byte(strings.Replace(string(space.Body), `"metadata":{`, `"metadata":{"annotations":{"`+lifecycle.ImmutableTags+`":"v?"},`, 1))
		if _, err := w.store.Create(w.Context(), space); err != nil {
			t.Fatal(err)
		}
		for i, tag := range []string{"v1", "v10", "a1", "a2"} {
			w.push("shop/web", tag, fmt.Sprint(i))
			w.push("shop/other", tag, fmt.Sprint(i))
		}
		if err := w.update("shop", "web", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"clean": "yes"}) }); err != nil {
			t.Fatal(err)
		}
		const web = `{"selector":{"matchLabels":{"clean":"yes"}},"rules":[{"tags":[%q]}]}`
		w.policy("v", fmt.Sprintf(web, "v*"), false)
		w.policy("a", fmt.Sprintf(web, "a*"), false)
		for policy, want := range map[string]string{
			"v": "shop/web:v10 would go|shop/web:v1 stays: immutable|1 tags would go", "a": "shop/web:a1 would go|shop/web:a2 would go|2 tags would go", "none": "0 tags would go",
			"*": "shop/web:a1 would go|shop/web:a2 would go|shop/web:v10 would go|shop/web:v1 stays: immutable|3 tags would go",
		} {
			plan, err := w.retention.Plan(w.Context(), "shop", policy, 0)
			var lines []string
			for _, line := range plan.Lines() {
				line, _, _ = strings.Cut(line, ": policy")
				lines = append(lines, line)
			}
			if got := strings.Join(lines, "|"); err != nil || got != want {
				t.Errorf("the plan of %s is %q, %v; want %q", policy, got, err, want)
			}
		}
		w.policy("v", fmt.Sprintf(web, "v*"), true)
		w.retain()
		w.wantTags("shop/web", "a1 a2 v1")
		w.wantTags("shop/other", "a1 a2 v1 v10")
		for field, want := range map[string]string{"state": "Started", "wouldTake": "0", "taken": "1", "lastTaken": w.now.UTC().Format(time.RFC3339)} {
			if got := w.statusOf("v", field); got != want {
				t.Errorf("%s is %s, not %s", field, got, want)
			}
		}
		for field, want := range map[string]string{"state": "Observing", "wouldTake": "2", "taken": "0", "lastTaken": "<nil>"} {
			if got := w.statusOf("a", field); got != want {
				t.Errorf("of the policy that observes, %s is %s, not %s", field, got, want)
			}
		}
		if len(w.lostTags) != 1 || w.lostTags[0] != int64(w.Count(`SELECT id FROM repositories WHERE path = 'shop/web'`)) {
			t.Errorf("the repositories %v lost tags", w.lostTags)
		}
		for _, bad := range []string{`{"rules":[{"tags":["["]}]}`, `{"rules":[{"tags":["*"],"keepFor":"long"}]}`} {
			body := `{"apiVersion":"registry.exeunt.dev/v1","kind":"RetentionPolicy","metadata":{"name":"bad"},"spec":` + bad + `}`
			if a := w.ask("POST", policiesPath, body); a.Code != 422 {
				t.Errorf("%s: %d %s", bad, a.Code, a.Body)
			}
		}
	})
}

// TestRetentionOfManyTags: a run of a repository with more tags than a page decides about small parts of them under its lock, and takes what
// a decision about all says.
func TestRetentionOfManyTags(t *testing.T) {
	each(t, func(w *world) {
		const many, last = 2500, 700 // more than two pages
		w.now = time.Now().Add(time.Hour)
		w.push("shop/web", "main", "0")
		w.Exec(`INSERT INTO tags (top_level_namespace_id, repository_id, name, manifest_id, created_at, updated_at)
			WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST($1 AS bigint))
			SELECT t.top_level_namespace_id, t.repository_id, 'pr-' || n.i, t.manifest_id, 0, n.i FROM n, tags t WHERE t.name = 'main'`, many)
		w.policy("pr", fmt.Sprintf(`{"rules":[{"tags":["pr-*"],"keepLast":%d}]}`, last), false)
		w.retain()
		if would := w.statusOf("pr", "wouldTake"); would != fmt.Sprint(many-last) {
			t.Errorf("it would take %s", would)
		}
		plan, err := w.retention.Plan(w.Context(), "shop", "pr", 0)
		if err != nil || len(plan.Repositories) != 1 || len(plan.Repositories[0].Taken) != many-last {
			t.Errorf("the plan is %+v, %v", plan, err)
		}
		w.policy("pr", fmt.Sprintf(`{"rules":[{"tags":["pr-*"],"keepLast":%d}]}`, last), true)
		w.retain()
		if left, oldest := w.tags("shop/web"), w.Count(`SELECT min(updated_at) FROM tags`); len(left) != last+1 || oldest != many-last+1 {
			t.Errorf("%d tags are left, the oldest of %d", len(left), oldest)
		}
	})
}

var retentionRounds = flag.Int("retention-rounds", 50, "random worlds of TestRetentionWorlds, for each engine")

// TestRetentionWorlds: in random worlds a run takes exactly what the plan said before it, and nothing that is in use or immutable; a
// second run takes nothing; what an observing policy says it would take is what its plan has.
func TestRetentionWorlds(t *testing.T) {
	each(t, func(w *world) {
		seed := uint64(time.Now().UnixNano())
		random := rand.New(rand.NewPCG(seed, 4))
		w.Logf("seed %d", seed)
		w.now = time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)
		digests := []string{}
		for i := range 5 {
			digests = append(digests, w.push("shop/web", fmt.Sprint("x", i), fmt.Sprint(i)))
		}
		pattern := func() string { return []string{"*", "a*", "b*", "*1", "?2", "a[0-4]"}[random.IntN(6)] }
		for round := range *retentionRounds {
			w.Exec(`DELETE FROM tags`)
			w.Exec(`DELETE FROM image_uses`)
			ago := func() int64 { return w.now.Add(-time.Duration(random.IntN(100)) * time.Hour).UnixMilli() }
			for i := range random.IntN(14) {
				name, digest := fmt.Sprint([]string{"a", "b"}[i%2], i/2), digests[random.IntN(len(digests))]
				w.Exec(`INSERT INTO tags (top_level_namespace_id, repository_id, name, manifest_id, created_at, updated_at, pulled_at)
					SELECT m.top_level_namespace_id, m.repository_id, $1, m.id, 0, $2, $3 FROM manifests m WHERE m.digest = $4`, name, ago(), ago(), digest)
				if random.IntN(5) == 0 {
					w.Exec(`INSERT INTO image_uses (path, reference, uid, kind, namespace, name) VALUES ('shop/web', $1, $2, 'pods', 'n', 'p')`,
						[]string{name, digest}[random.IntN(2)], fmt.Sprint(i))
				}
			}
			immutable := []string{"none", "a1", "b*"}[random.IntN(3)]
			w.annotate("shop", "web", lifecycle.ImmutableTags, immutable)
			for i := range 3 {
				rules := []string{}
				for range 1 + random.IntN(3) {
					rules = append(rules, fmt.Sprintf(`{"tags":[%q],"keepLast":%d,"keepFor":"%dh","by":%q}`,
						pattern(), random.IntN(4), random.IntN(2)*random.IntN(100), []string{"Push", "Pull"}[random.IntN(2)]))
				}
				w.policy(fmt.Sprint("p", i), `{"keep":["`+[]string{"none", pattern()}[random.IntN(2)]+`"],"rules":[`+strings.Join(rules, ",")+`]}`, random.IntN(2) == 0)
			}
			before := w.tags("shop/web")
			plan, err := w.retention.Plan(w.Context(), "shop", "", 0)
			if err != nil {
				w.Fatal(err)
			}
			held := w.Strings(`SELECT t.name FROM tags t JOIN manifests m ON m.id = t.manifest_id JOIN image_uses u ON u.reference IN (t.name, m.digest)`)
			w.retain()
			after := w.tags("shop/web")
			var planned []string
			for _, repo := range plan.Repositories {
				for _, taken := range repo.Taken {
					planned = append(planned, taken.Tag)
					if slices.Contains(held, taken.Tag) || lifecycle.ImmutableTag(map[string]string{lifecycle.ImmutableTags: immutable}, taken.Tag) != "" {
						w.Errorf("round %d: %s is held, and taken", round, taken.Tag)
					}
				}
			}
			gone := slices.DeleteFunc(before, func(tag string) bool { return slices.Contains(after, tag) })
			if !slices.Equal(gone, planned) {
				w.Fatalf("round %d: the plan has %v, and the run took %v", round, planned, gone)
			}
			for i := range 3 {
				name := fmt.Sprint("p", i)
				one, err := w.retention.Plan(w.Context(), "shop", name, 0)
				if err != nil {
					w.Fatal(err)
				}
				would := 0
				for _, repo := range one.Repositories {
					for _, taken := range repo.Taken {
						if taken.Policy == name {
							would++
						}
					}
				}
				if got := w.statusOf(name, "wouldTake"); w.statusOf(name, "state") == "Observing" && got != fmt.Sprint(would) {
					w.Errorf("round %d: %s says %s, and its plan has %d", round, name, got, would)
				}
			}
			w.retain()
			if again := w.tags("shop/web"); !slices.Equal(again, after) {
				w.Fatalf("round %d: a second run took more: %v, %v", round, after, again)
			}
		}
	})
}

// TestRaceRetention: on PostgreSQL a workload that names a tag, and a push of it, are before the run, and then the tag stays, or wait
// for it.
func TestRaceRetention(t *testing.T) {
	each(t, func(w *world) {
		if w.DB.Engine() != sqldb.Postgres {
			return // one writer: one comes before the other
		}
		w.now = time.Now().Add(time.Hour)
		w.push("shop/web", "a", "one")
		w.push("shop/web", "b", "two")
		w.policy("all", `{"rules":[{"tags":["*"]}]}`, true)

		// The workload is written, and not committed.
		begun, end := make(chan struct{}), make(chan struct{})
		written := make(chan error, 1)
		go func() {
			written <- w.store.Transact(w.Context(), func(tx *store.Tx) error {
				var b sqldb.Batch
				imageuse.Queue(&b, sqldb.Postgres, object.Key{Kind: "pods", Namespace: "fair", Name: "p"}, "p", []byte(`{"spec":{"containers":[{"image":"shop/web:a"}]}}`), nil, 0)
				if err := tx.Send(context.WithoutCancel(w.Context()), &b); err != nil {
					return err
				}
				close(begun)
				<-end
				return nil
			})
		}()
		<-begun
		one, err := retain.New(w.DB, w.store, retain.Options{Now: func() time.Time { return w.now }})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- one.RunOne(w.Context()) }()
		w.waiting(1)
		close(end)
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		<-ran // it gave way, or came after
		w.retain()
		w.wantTags("shop/web", "a")

		// A push is under way: the run waits for it, and the next one sees its tag as new.
		w.policy("all", `{"rules":[{"tags":["*"],"keepLast":1}]}`, true)
		w.Exec(`DELETE FROM image_uses`)
		w.push("shop/web", "c", "three") // it is to leave; otherwise a run begins no transaction
		w.Exec(`UPDATE tags SET updated_at = 1`)
		tx, err := w.DB.Begin(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := tx.Exec(w.Context(), `SELECT 1 FROM repositories WHERE path = 'shop/web' FOR SHARE`); err != nil {
			t.Fatal(err)
		}
		if err := tx.Exec(w.Context(), `INSERT INTO tags (top_level_namespace_id, repository_id, name, manifest_id, created_at, updated_at)
			SELECT m.top_level_namespace_id, m.repository_id, 'new', m.id, 0, 5 FROM manifests m LIMIT 1`); err != nil {
			t.Fatal(err)
		}
		go func() { ran <- w.retention.RunOne(w.Context()) }()
		w.waiting(1)
		if err := tx.Commit(w.Context()); err != nil {
			t.Fatal(err)
		}
		<-ran
		w.retain()
		w.wantTags("shop/web", "new")
	})
}

// TestChangeDuringRetention: what is named, pushed, protected or stopped after a run has decided, and before it deletes, counts. The run
// asks the clock each time it decides.
func TestChangeDuringRetention(t *testing.T) {
	each(t, func(w *world) {
		w.now = time.Now().Add(time.Hour)
		protect := func(tags string) { w.annotate("shop", "web", lifecycle.ImmutableTags, tags) }
		for name, c := range map[string]struct {
			change func()
			want   string
		}{
			"named": {func() {
				w.Exec(`INSERT INTO image_uses (path, reference, uid, kind, namespace, name) SELECT 'shop/web', 'a', 'p', 'pods', 'n', 'p' WHERE NOT EXISTS (SELECT 1 FROM image_uses)`)
			}, "a"},
			"pushed":    {func() { w.Exec(`UPDATE tags SET updated_at = $1 WHERE name = 'a'`, w.now.UnixMilli()) }, "a"},
			"immutable": {func() { protect("a") }, "a"},
			"stopped":   {func() { w.policy("all", `{"rules":[{"tags":["*"]}]}`, false) }, "a b"},
		} {
			for call := 1; call <= 3; call++ {
				w.Exec(`DELETE FROM image_uses`)
				w.push("shop/web", "a", "one")
				w.push("shop/web", "b", "two")
				protect("none")
				w.policy("all", `{"rules":[{"tags":["*"],"keepFor":"30m"}]}`, true)
				calls := 0
				run, err := retain.New(w.DB, w.store, retain.Options{Logger: slog.New(slog.DiscardHandler), Now: func() time.Time {
					if calls++; calls == call {
						c.change()
					}
					return w.now
				}})
				if err == nil {
					err = run.RunOne(w.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(w.tags("shop/web"), " "); calls < call || got != c.want {
					t.Errorf("%s at call %d of %d: the tags are %q, want %q", name, call, calls, got, c.want)
				}
			}
		}
	})
}

// TestTooManyPolicies: a namespace has no more policies than a run may read. One that goes makes room for another.
func TestTooManyPolicies(t *testing.T) {
	each(t, func(w *world) {
		w.now = time.Now().Add(time.Hour)
		w.push("shop/web", "pr-1", "1")
		for i := range lifecycle.MostRetentionPolicies {
			w.policy(fmt.Sprintf("p%03d", i), `{"rules":[{"tags":["none"]}]}`, false)
		}
		another := `{"apiVersion":"registry.exeunt.dev/v1","kind":"RetentionPolicy","metadata":{"name":"another"},"spec":{"rules":[{"tags":["none"]}]}}`
		if a := w.ask("POST", policiesPath, another); a.Code != 403 {
			t.Errorf("one more than %d policies: %d %s", lifecycle.MostRetentionPolicies, a.Code, a.Body)
		}
		w.policy("p000", `{"rules":[{"tags":["pr-*"]}]}`, true)
		w.retain()
		w.wantTags("shop/web", "")
	})
}
