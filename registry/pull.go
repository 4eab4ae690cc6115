package registry

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

const (
	// pullEvery is how exact the time of a pull is: a manifest that is pulled all the time is written once in it.
	pullEvery = time.Hour
	// mostPulls bounds the manifests that a replica remembers. Then it forgets all: the next pull of each is written again.
	mostPulls = 10_000
	// pullWait bounds what the write of a pull waits for the database.
	pullWait = 5 * time.Second
	// countEvery is how long a replica keeps the number of pulls before it writes it, and mostCounts how many.
	countEvery, mostCounts = time.Minute, 1000
	// byConsole is the header of requests that the console makes to show an image: they are not pulls.
	byConsole = "X-Exeunt-Console"
)

// pulls are the manifests whose pull this replica has written lately, and the numbers that it has not written yet.
type pulls struct {
	mu     sync.Mutex
	at     map[int64]time.Time // by id; guarded by mu
	counts map[pullDay]int64   // guarded by mu
	timer  *time.Timer         // runs while there are counts; guarded by mu
}

// pullDay is what a row of pull_days counts.
type pullDay struct {
	repo, day   int64
	tag, digest string // tag is empty if a client named the digest
}

// due reports whether a pull of a manifest is to be written, and remembers that it is.
func (p *pulls) due(id int64, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, known := p.at[id]; known && now.Sub(last) < pullEvery {
		return false
	}
	if p.at == nil || len(p.at) >= mostPulls {
		p.at = map[int64]time.Time{}
	}
	p.at[id] = now
	return true
}

// count adds a pull, and calls write once when the numbers have waited long enough, or are many.
func (p *pulls) count(d pullDay, write func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		p.counts = map[pullDay]int64{}
		p.timer = time.AfterFunc(countEvery, write)
	}
	if p.counts[d]++; len(p.counts) == mostCounts {
		p.timer.Reset(0)
	}
}

// take returns the numbers that are not written yet.
func (p *pulls) take() map[pullDay]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := p.counts
	if p.counts = nil; p.timer != nil {
		p.timer.Stop()
	}
	return counts
}

// pulled writes when a manifest was pulled, for the tags that point at it. The client has its answer before that, and a
// failure is none of the client's: the time helps people to find unused images.
func (r *Registry) pulled(w http.ResponseWriter, req *http.Request, to Request, m stored) {
	now := r.now()
	if req.Header.Get(byConsole) != "" {
		return
	}
	r.pulls.count(pullDay{m.repo, now.Unix() / (24 * 60 * 60), to.Tag, m.digest.String()}, r.WritePulls)
	if !r.pulls.due(m.id, now) {
		return
	}
	_ = http.NewResponseController(w).Flush() // if it cannot, the client waits for the write
	statement := notePullSQLite
	if r.db.Engine() == sqldb.Postgres {
		statement = notePullPostgres
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), pullWait)
	defer cancel()
	err := r.writer.doSoon(ctx, func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		b.Exec(statement, m.id, now.UnixMilli())
		return tx.Send(ctx, &b)
	})
	if err != nil {
		r.log.Warn("registry: the time of a pull is not written", "error", err)
	}
}

// WritePulls writes how often manifests were pulled on a day. Numbers that cannot be written are lost: they tell what a
// RetentionPolicy would have done, and no decision needs them.
func (r *Registry) WritePulls() {
	counts := r.pulls.take()
	if len(counts) == 0 {
		return
	}
	days := make([]pullDay, 0, len(counts))
	for d := range counts {
		days = append(days, d)
	}
	slices.SortFunc(days, func(a, b pullDay) int { // replicas lock rows in one order
		return cmp.Or(cmp.Compare(a.repo, b.repo), cmp.Compare(a.day, b.day), cmp.Compare(a.tag, b.tag), cmp.Compare(a.digest, b.digest))
	})
	now := r.now().UnixMilli()
	var b sqldb.Batch
	for _, d := range days {
		b.Exec(countPulls, d.repo, d.day, d.tag, d.digest, counts[d], now)
	}
	ctx, cancel := context.WithTimeout(context.Background(), pullWait)
	defer cancel()
	if err := r.db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Send(ctx, &b) }); err != nil {
		r.log.Warn("registry: the number of pulls is not written", "error", err)
	}
}
