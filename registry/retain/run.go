package retain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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

// step is how many tags one transaction takes: pushes to the repository wait for it.
const step = 100

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
	for _, repo := range repos {
		for more := true; more && ctx.Err() == nil; {
			d, err := r.take(ctx, namespace, repo)
			if err != nil {
				errs = append(errs, fmt.Errorf("repository %s: %w", repo.path, err))
				break
			}
			for _, t := range d.Taken {
				taken[t.Policy]++
				r.opts.Logger.Info("retention took a tag", "repository", repo.path, "tag", t.Tag, "digest", t.Digest, "policy", namespace+"/"+t.Policy, "why", t.Why)
			}
			if more = len(d.Taken) == step; len(d.Taken) > 0 {
				r.opts.Changed(repo.id)
			}
		}
	}
	return errors.Join(append(errs, r.report(ctx, namespace, taken))...)
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

// take decides about a repository, and deletes what leaves, up to step tags, in one transaction. On PostgreSQL it
// first waits for the workloads that name images of the repository and are being written, and for pushes; then
// those wait for it. It gives way when it waits too long, as the collector does.
func (r *Retention) take(ctx context.Context, namespace string, repo repository) (d Decision, err error) {
	err = r.db.Transact(ctx, func(tx *sqldb.Tx) error {
		postgres := r.db.Engine() == sqldb.Postgres
		if postgres {
			var b sqldb.Batch
			b.Exec(lockTimeout)
			b.Exec(lockUses, repo.path)
			b.Exec(lockRepository, repo.id)
			if err := tx.Send(ctx, &b); err != nil {
				return err
			}
		}
		policies, tags, err := r.selected(ctx, tx, namespace, repo, func(p *Policy) bool { return p.Started })
		if d = Decide(r.opts.Now(), policies, tags); err != nil || len(d.Taken) == 0 {
			return err
		}
		d.Taken = d.Taken[:min(len(d.Taken), step)]
		names := make([]string, len(d.Taken))
		for i, t := range d.Taken {
			names[i] = t.Tag
		}
		var b sqldb.Batch
		if postgres {
			b.Exec(orderTags, repo.id, names)
		}
		b.Exec(deleteTags[r.db.Engine()], repo.id, sqldb.List(r.db.Engine(), names))
		return tx.Send(ctx, &b)
	})
	return d, err
}

// selected reads the policies of a repository that count, and, if there are any, its tags.
func (r *Retention) selected(ctx context.Context, s sqldb.Sender, namespace string, repo repository, counts func(*Policy) bool) (policies []Policy, tags []Tag, err error) {
	policies, err = r.policies(ctx, s, namespace)
	policies = slices.DeleteFunc(policies, func(p Policy) bool { return !counts(&p) || !p.Selector.Matches(repo.labels) })
	if err == nil && len(policies) > 0 {
		tags, err = r.tags(ctx, s, namespace, repo)
	}
	return policies, tags, err
}

// tags reads the tags of a repository.
func (r *Retention) tags(ctx context.Context, s sqldb.Sender, namespace string, repo repository) (tags []Tag, err error) {
	tagRules, err := registry.TagRules(ctx, s, namespace, repo.path)
	if err != nil {
		return nil, err
	}
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
		t.Immutable = slices.ContainsFunc(tagRules, func(m map[string]string) bool { return lifecycle.ImmutableTag(m, t.Name) != "" })
		tags = append(tags, t)
		return nil
	}, listTags, repo.id, repo.path); err != nil {
		return nil, fmt.Errorf("list tags: %w", err)
	}
	return tags, nil
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
		policies, tags, err := r.selected(ctx, tx, namespace, repo, func(p *Policy) bool { return p.Started || p.Name == policy || policy == "*" })
		one := RepositoryPlan{repo.path, Decide(now, policies, tags), nil}
		if err == nil && days > 0 && len(policies) > 0 {
			var p past
			p, err = r.past(ctx, tx, repo, tags, first)
			one.Failed = replay(first, dayOf(now), policies, p)
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
// repository once for all of them.
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
		tags, err := r.tags(ctx, r.db, namespace, repo)
		if err != nil {
			return nil, fmt.Errorf("repository %s: %w", repo.path, err)
		}
		for _, p := range policies {
			if p.Started || !p.Selector.Matches(repo.labels) {
				continue
			}
			beside := slices.DeleteFunc(slices.Clone(policies), func(o Policy) bool {
				return o.Name != p.Name && !o.Started || !o.Selector.Matches(repo.labels)
			})
			for _, t := range Decide(r.opts.Now(), beside, tags).Taken {
				if t.Policy == p.Name {
					count[p.Name]++
				}
			}
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
