package retain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Path is the URL path of the plan.
const Path = "/exeunt/registry/retention"

const (
	// step is how many tags one transaction takes: pushes to the repository wait for it.
	step = 100
	// pageTags is how many tags are read at once.
	pageTags = 1000
	// namespaceTime is how long one run works on a namespace, at most: how long it takes is up to those who write policies and push tags
	// there.
	namespaceTime = 2 * time.Minute
	// attempts is how often a run decides about the same tags, if they are changed meanwhile.
	attempts = 3
)

// Options are the settings of a Retention. Zero values have a default.
type Options struct {
	// Every is how often the policies are applied. Default five minutes.
	Every time.Duration
	// Paused is called before each turn. Default: never paused.
	Paused func(ctx context.Context) (bool, error)
	// Changed is called with the id of a repository that lost tags. May be nil.
	Changed func(repository int64)
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Logger logs what is taken, and failures. Default slog.Default.
	Logger *slog.Logger
}

// Retention applies RetentionPolicies. Any number of replicas may do so: each decides in the transaction that
// deletes.
type Retention struct {
	db     *sqldb.DB
	kind   *kind.Kind
	writer objects.Writer
	opts   Options
}

// New makes a Retention. It does no I/O.
func New(db *sqldb.DB, st *store.Store, o Options) (*Retention, error) {
	o.Every = cmp.Or(o.Every, 5*time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Paused == nil {
		o.Paused = func(context.Context) (bool, error) { return false, nil }
	}
	if o.Changed == nil {
		o.Changed = func(int64) {}
	}
	k, err := newKind()
	if err != nil {
		return nil, fmt.Errorf("retention: %w", err)
	}
	return &Retention{db: db, kind: k, writer: objects.Writer{Store: st, Kinds: kind.NewRegistry([]*kind.Kind{k}), Actor: "system:registry:retention"}, opts: o}, nil
}

// Kind is RetentionPolicy.
func (r *Retention) Kind() *kind.Kind { return r.kind }

// Run applies the policies until ctx ends.
func (r *Retention) Run(ctx context.Context) error {
	for task.Sleep(ctx, r.opts.Every) {
		paused, err := r.opts.Paused(ctx)
		if err == nil && !paused {
			err = r.RunOne(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.opts.Logger.Warn("registry retention", "error", err)
		}
	}
	return nil
}

// RunOne applies the policies once, and writes their status.
func (r *Retention) RunOne(ctx context.Context) error {
	if err := r.forget(ctx); err != nil {
		return err
	}
	namespaces, err := sqldb.Column[string](ctx, r.db, listNamespaces, r.kind.Storage)
	if err != nil {
		return fmt.Errorf("list namespaces with policies: %w", err)
	}
	var errs []error
	for _, namespace := range namespaces {
		if err := r.runNamespace(ctx, namespace); err != nil {
			errs = append(errs, fmt.Errorf("namespace %s: %w", namespace, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Retention) runNamespace(ctx context.Context, namespace string) error {
	repos, err := r.repositories(ctx, r.db, namespace)
	if err != nil {
		return err
	}
	taken := map[string]int64{}
	var errs []error
	limited, cancel := context.WithTimeout(ctx, namespaceTime)
	defer cancel()
	for _, repo := range repos {
		err := r.runRepository(limited, namespace, repo, func(all []Taken) {
			for _, t := range all {
				taken[t.Policy]++
				r.opts.Logger.Info("retention took a tag", "repository", repo.path, "tag", t.Tag, "digest", t.Digest, "policy", namespace+"/"+t.Policy, "why", t.Why)
			}
			if len(all) > 0 {
				r.opts.Changed(repo.id)
			}
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("repository %s: %w", repo.path, err))
		}
	}
	return errors.Join(append(errs, r.report(limited, namespace, taken))...)
}

// runRepository finds what leaves a repository without a lock, a page of tags at a time, and takes it in small transactions.
func (r *Retention) runRepository(ctx context.Context, namespace string, repo repository, took func([]Taken)) error {
	versions, err := r.versions(ctx, r.db, namespace) // before the policies
	if err != nil {
		return err
	}
	policies, err := r.selecting(ctx, r.db, namespace, repo, func(p *Policy) bool { return p.Started })
	if err != nil || len(policies) == 0 {
		return err
	}
	return r.decide(ctx, r.db, namespace, repo, policies, func(n newest, page []Tag) error {
		var names []string
		for _, t := range n.decide(r.opts.Now(), policies, page).Taken {
			names = append(names, t.Tag)
		}
		for some := range slices.Chunk(names, step) {
			taken, err := r.take(ctx, namespace, repo, policies, versions, append(n.names(), some...))
			if took(taken); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}

// repository is a repository that policies may be about.
type repository struct {
	id     int64
	path   string
	labels labels.Set
}

// repositories lists those of a namespace that exist.
func (r *Retention) repositories(ctx context.Context, s sqldb.Sender, namespace string) (list []repository, err error) {
	err = sqldb.Each(ctx, s, func(row sqldb.Row) error {
		var repo repository
		var body []byte
		if err := row.Scan(&repo.id, &repo.path, &body); err != nil {
			return err
		}
		m, err := object.ParseMeta(body)
		repo.labels = m.Labels
		list = append(list, repo)
		return err
	}, listSelectable, namespace)
	if err != nil {
		return nil, fmt.Errorf("list repositories: %w", err)
	}
	return list, nil
}

// take decides about some tags of a repository, without a lock, and deletes what leaves, up to step tags, in a transaction that finds
// tags, rules and policies as they were: so it matches no patterns while others wait. If they have changed, it decides again; after a
// change of the policies, the next run does.
func (r *Retention) take(ctx context.Context, namespace string, repo repository, policies []Policy, versions []int64, among []string) ([]Taken, error) {
	named := namedTags[r.db.Engine()]
	for range attempts {
		rules, err := registry.TagRules(ctx, r.db, namespace, repo.path)
		if err != nil {
			return nil, err
		}
		tags, err := r.rows(ctx, r.db, repo, named, sqldb.List(r.db.Engine(), among))
		if err != nil {
			return nil, err
		}
		taken := Decide(r.opts.Now(), policies, withRules(tags, rules)).Taken
		if len(taken) == 0 {
			return nil, nil
		}
		taken = taken[:min(len(taken), step)]
		done := false
		err = r.db.Transact(ctx, func(tx *sqldb.Tx) error {
			if err := r.lock(ctx, tx, repo); err != nil {
				return err
			}
			done, err = r.unchanged(ctx, tx, namespace, repo, versions, rules, tags, among)
			if err != nil || !done {
				return err
			}
			return r.remove(ctx, tx, repo, taken)
		})
		switch {
		case err != nil:
			return nil, err
		case done:
			return taken, nil
		}
	}
	return nil, nil
}

// lock waits, on PostgreSQL, first for the workloads that name images of the repository and are being written, and for pushes; then
// those wait for it. It gives way when it waits too long, as the collector does.
func (r *Retention) lock(ctx context.Context, tx *sqldb.Tx, repo repository) error {
	if r.db.Engine() != sqldb.Postgres {
		return nil
	}
	var b sqldb.Batch
	b.Exec(lockTimeout)
	b.Exec(lockUses, repo.path)
	b.Exec(lockRepository, repo.id)
	return tx.Send(ctx, &b)
}

// unchanged reports whether all that a decision was made of is as it was read.
func (r *Retention) unchanged(ctx context.Context, tx *sqldb.Tx, namespace string, repo repository, versions []int64, rules []map[string]string, tags []Tag, among []string) (bool, error) {
	versionsNow, err := r.versions(ctx, tx, namespace)
	if err != nil {
		return false, err
	}
	rulesNow, err := registry.TagRules(ctx, tx, namespace, repo.path)
	if err != nil {
		return false, err
	}
	tagsNow, err := r.rows(ctx, tx, repo, namedTags[r.db.Engine()], sqldb.List(r.db.Engine(), among))
	return slices.Equal(versions, versionsNow) && reflect.DeepEqual(rules, rulesNow) && slices.Equal(tags, tagsNow), err
}

func (r *Retention) remove(ctx context.Context, tx *sqldb.Tx, repo repository, taken []Taken) error {
	names := make([]string, len(taken))
	for i, t := range taken {
		names[i] = t.Tag
	}
	var b sqldb.Batch
	if r.db.Engine() == sqldb.Postgres {
		b.Exec(orderTags, repo.id, names)
	}
	b.Exec(deleteTags[r.db.Engine()], repo.id, sqldb.List(r.db.Engine(), names))
	return tx.Send(ctx, &b)
}

// versions reads the revisions of the policies of a namespace.
func (r *Retention) versions(ctx context.Context, s sqldb.Sender, namespace string) ([]int64, error) {
	list, err := sqldb.Column[int64](ctx, s, listVersions, r.kind.Storage, namespace)
	if err != nil {
		return nil, fmt.Errorf("read the revisions of policies: %w", err)
	}
	return list, nil
}

// selecting reads the policies that select a repository and count.
func (r *Retention) selecting(ctx context.Context, s sqldb.Sender, namespace string, repo repository, counts func(*Policy) bool) ([]Policy, error) {
	policies, err := r.policies(ctx, s, namespace)
	return slices.DeleteFunc(policies, func(p Policy) bool { return !counts(&p) || !p.Selector.Matches(repo.labels) }), err
}

// decide reads the tags of a repository twice, a page at a time: first to find the newest that policies keep, then for about.
func (r *Retention) decide(ctx context.Context, s sqldb.Sender, namespace string, repo repository, policies []Policy, about func(n newest, page []Tag) error) error {
	n := newNewest(policies)
	if err := r.eachPage(ctx, s, namespace, repo, func(page []Tag) error {
		err := learn(ctx, policies, page)
		n.add(page)
		return err
	}); err != nil {
		return err
	}
	return r.eachPage(ctx, s, namespace, repo, func(page []Tag) error {
		if err := learn(ctx, policies, page); err != nil {
			return err
		}
		return about(n, page)
	})
}

// eachPage reads the tags of a repository in the order of their names.
func (r *Retention) eachPage(ctx context.Context, s sqldb.Sender, namespace string, repo repository, fn func([]Tag) error) error {
	after := ""
	for {
		page, err := r.tags(ctx, s, namespace, repo, listTags, after, pageTags)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := fn(page); err != nil || len(page) < pageTags {
			return err
		}
		after = page[len(page)-1].Name
	}
}

// tags reads tags of a repository. A statement has the repository's id and path and then the arguments.
func (r *Retention) tags(ctx context.Context, s sqldb.Sender, namespace string, repo repository, statement string, args ...any) ([]Tag, error) {
	rules, err := registry.TagRules(ctx, s, namespace, repo.path)
	if err != nil {
		return nil, err
	}
	tags, err := r.rows(ctx, s, repo, statement, args...)
	return withRules(tags, rules), err
}

// rows reads tags without the rules that make them immutable.
func (r *Retention) rows(ctx context.Context, s sqldb.Sender, repo repository, statement string, args ...any) (tags []Tag, err error) {
	if err := sqldb.Each(ctx, s, func(row sqldb.Row) error {
		var t Tag
		var pushed, pulled int64
		if err := row.Scan(&t.Name, &t.Digest, &pushed, &pulled, &t.InUse); err != nil {
			return err
		}
		t.Pushed = time.UnixMilli(pushed)
		if pulled > 0 {
			t.Pulled = time.UnixMilli(pulled)
		}
		tags = append(tags, t)
		return nil
	}, statement, append([]any{repo.id, repo.path}, args...)...); err != nil {
		return nil, fmt.Errorf("list tags: %w", err)
	}
	return tags, nil
}

// withRules returns a copy of tags that says which are immutable.
func withRules(tags []Tag, rules []map[string]string) []Tag {
	tags = slices.Clone(tags)
	for i, t := range tags {
		tags[i].Immutable = slices.ContainsFunc(rules, func(m map[string]string) bool { return lifecycle.ImmutableTag(m, t.Name) != "" })
	}
	return tags
}

// policies reads the policies of a namespace. One that cannot be read is an error: it might keep what others take.
func (r *Retention) policies(ctx context.Context, s sqldb.Sender, namespace string) (list []Policy, err error) {
	err = sqldb.Each(ctx, s, func(row sqldb.Row) error {
		var body []byte
		if err := row.Scan(&body); err != nil {
			return err
		}
		p, err := parse(body)
		if err != nil {
			return fmt.Errorf("policy %s: %w", p.Name, err)
		}
		list = append(list, p)
		return nil
	}, listPolicies, r.kind.Storage, namespace)
	return list, err
}

// Plan is what the policies of a namespace would take now.
type Plan struct {
	Repositories []RepositoryPlan `json:"repositories"`
	Since        string           `json:"since,omitempty"` // the first day that was simulated
}

// RepositoryPlan is a Plan of one repository.
type RepositoryPlan struct {
	Repository string `json:"repository"`
	Decision
	Failed []Failed `json:"failed,omitempty"` // the pulls that would have failed, had the policies run since that day
}

// Plan returns what a run would take: by the policies that are started, and by one more as if it were; "*" is all. If days
// is not 0, it simulates the last days, as far as they are recorded. It reads one snapshot, and changes nothing.
func (r *Retention) Plan(ctx context.Context, namespace, policy string, days int64) (plan Plan, err error) {
	tx, err := r.db.Snapshot(ctx)
	if err != nil {
		return plan, err
	}
	defer tx.Close()
	repos, err := r.repositories(ctx, tx, namespace)
	now := r.opts.Now()
	first := dayOf(now) - min(days, maxDays) + 1
	if err == nil && days > 0 {
		var oldest int64
		_, err = sqldb.First(ctx, tx, []any{&oldest}, findOldest, dayOf(now))
		first = max(first, oldest)
		plan.Since = dayTime(first).Format(time.DateOnly)
	}
	plan.Repositories = []RepositoryPlan{}
	for _, repo := range repos {
		one := RepositoryPlan{Repository: repo.path}
		policies, err := r.selecting(ctx, tx, namespace, repo, func(p *Policy) bool { return p.Started || p.Name == policy || policy == "*" })
		if err == nil && len(policies) > 0 {
			var all []Tag // for a simulation
			err = r.decide(ctx, tx, namespace, repo, policies, func(n newest, page []Tag) error {
				d := n.decide(now, policies, page)
				one.Taken, one.Held = append(one.Taken, d.Taken...), append(one.Held, d.Held...)
				if days > 0 {
					all = append(all, page...)
				}
				return nil
			})
			if err == nil && days > 0 {
				var p past
				p, err = r.past(ctx, tx, repo, all, first)
				one.Failed = replay(first, dayOf(now), policies, p)
			}
		}
		if err != nil {
			return plan, fmt.Errorf("plan of %s: %w", repo.path, err)
		}
		if len(one.Taken)+len(one.Held)+len(one.Failed) > 0 {
			plan.Repositories = append(plan.Repositories, one)
		}
	}
	return plan, err
}

// Lines says it for people.
func (p *Plan) Lines() (lines []string) {
	taken, failed := 0, int64(0)
	for _, repo := range p.Repositories {
		for _, t := range repo.Taken {
			lines = append(lines, fmt.Sprintf("%s:%s would go: policy %s, %s", repo.Repository, t.Tag, t.Policy, t.Why))
		}
		for _, t := range repo.Held {
			lines = append(lines, fmt.Sprintf("%s:%s stays: %s", repo.Repository, t.Tag, t.Why))
		}
		for _, f := range repo.Failed {
			lines = append(lines, fmt.Sprintf("%s on %s: %d pulls would have failed: policy %s", repo.Repository+f.Reference, f.Day, f.Pulls, f.Policy))
			failed += f.Pulls
		}
		taken += len(repo.Taken)
	}
	if p.Since != "" {
		lines = append(lines, fmt.Sprintf("%d pulls since %s would have failed", failed, p.Since))
	}
	return append(lines, fmt.Sprintf("%d tags would go", taken))
}

// ServeHTTP answers with a Plan: GET Path?namespace=N&policy=P&days=D, all optional. The server has authorized the client.
func (r *Retention) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	namespace, policy := cmp.Or(req.URL.Query().Get("namespace"), "default"), cmp.Or(req.URL.Query().Get("policy"), "*")
	days, _ := strconv.ParseInt(req.URL.Query().Get("days"), 10, 64) // what is no number is none
	plan, err := r.Plan(req.Context(), namespace, policy, days)
	w.Header().Set("Content-Type", "application/json")
	if req.Method != http.MethodGet {
		err = errors.New("use GET")
	}
	if err != nil {
		r.opts.Logger.Warn("registry retention: plan", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		_ = json.NewEncoder(w).Encode(metav1.Status{ // the client may be gone
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "the plan cannot be made; the server's log says more",
		})
		return
	}
	_ = json.NewEncoder(w).Encode(plan)
}

// report writes the status of the policies of a namespace.
func (r *Retention) report(ctx context.Context, namespace string, taken map[string]int64) error {
	policies, err := r.policies(ctx, r.db, namespace)
	if err != nil {
		return err
	}
	would, err := r.would(ctx, namespace, policies)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range policies {
		if err := r.write(ctx, namespace, p, would[p.Name], taken[p.Name]); err != nil && !object.Is(err, object.Conflict) && !object.Is(err, object.NotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// would counts what each policy that is not started would take, beside those that are. It reads the tags of a
// repository for all of them at once.
func (r *Retention) would(ctx context.Context, namespace string, policies []Policy) (map[string]int64, error) {
	count := map[string]int64{}
	if !slices.ContainsFunc(policies, func(p Policy) bool { return !p.Started }) {
		return count, nil
	}
	repos, err := r.repositories(ctx, r.db, namespace)
	if err != nil {
		return nil, err
	}
	for _, repo := range repos {
		err := r.decide(ctx, r.db, namespace, repo, policies, func(n newest, page []Tag) error {
			for _, p := range policies {
				if p.Started || !p.Selector.Matches(repo.labels) {
					continue
				}
				beside := slices.DeleteFunc(slices.Clone(policies), func(o Policy) bool {
					return o.Name != p.Name && !o.Started || !o.Selector.Matches(repo.labels)
				})
				for _, t := range n.decide(r.opts.Now(), beside, page).Taken {
					if t.Policy == p.Name {
						count[p.Name]++
					}
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("repository %s: %w", repo.path, err)
		}
	}
	return count, nil
}

// write stores the status of a policy, if it changed.
func (r *Retention) write(ctx context.Context, namespace string, p Policy, would, taken int64) error {
	return r.writer.SetStatus(ctx, r.kind.Versions[0].GVK.GroupVersion().WithResource(r.kind.Plural), namespace, p.Name, func(status map[string]any) error {
		status["state"], status["wouldTake"], status["taken"] = "Observing", would, objects.Figure(status, "taken")+taken
		if p.Started {
			status["state"] = "Started"
		}
		if taken > 0 {
			status["lastTaken"] = r.opts.Now().UTC().Format(time.RFC3339)
		}
		return nil
	})
}
