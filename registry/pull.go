package registry

import (
	"context"
	"net/http"
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
	// byConsole is the header of requests that the console makes to show an image: they are not pulls.
	byConsole = "X-Exeunt-Console"
)

// pulls are the manifests whose pull this replica has written lately.
type pulls struct {
	mu sync.Mutex
	at map[int64]time.Time // by id; guarded by mu
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

// pulled writes when a manifest was pulled, for the tags that point at it. The client has its answer before that, and a
// failure is none of the client's: the time helps people to find unused images.
func (r *Registry) pulled(w http.ResponseWriter, req *http.Request, id int64) {
	now := r.now()
	if req.Header.Get(byConsole) != "" || !r.pulls.due(id, now) {
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
		b.Exec(statement, id, now.UnixMilli())
		return tx.Send(ctx, &b)
	})
	if err != nil {
		r.log.Warn("registry: the time of a pull is not written", "error", err)
	}
}
