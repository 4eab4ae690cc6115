package registry

import (
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/sqldb"
)

// fresh keeps uploads that have begun but have no bytes yet. A row for each
// would cost one more commit per blob, and there is nothing to lose or to leave
// behind. The row is written with the first bytes; a small blob sent in one
// request never needs one.
//
// They are kept in memory where one process serves all requests: on SQLite. A
// restart forgets them, and clients have to start again, as after an expired
// upload.
type fresh struct {
	mu      sync.Mutex
	uploads map[string]freshUpload // by id; guarded by mu
}

type freshUpload struct {
	repository string
	algorithm  digest.Algorithm
	begun      time.Time
}

const (
	// freshKept bounds the number in memory: above it old ones are dropped, and
	// if there are none, rows are written.
	freshKept = 4096
	freshFor  = time.Hour
)

// add keeps an upload. False: it needs a row.
func (f *fresh) add(id string, u freshUpload) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.uploads) >= freshKept {
		for id, old := range f.uploads {
			if u.begun.Sub(old.begun) > freshFor {
				delete(f.uploads, id)
			}
		}
	}
	if len(f.uploads) >= freshKept {
		return false
	}
	if f.uploads == nil {
		f.uploads = map[string]freshUpload{}
	}
	f.uploads[id] = u
	return true
}

// find finds an upload of a repository. take also removes it, so only one
// request gets it.
func (f *fresh) find(to Request) (freshUpload, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u, ok := f.uploads[to.Upload]
	return u, ok && u.repository == to.Repository
}

// count returns how many there are, and how many in a namespace.
func (f *fresh) count(namespace string) (all, here int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.uploads {
		if topLevel(u.repository) == namespace {
			here++
		}
	}
	return len(f.uploads), here
}

func (f *fresh) take(to Request) (freshUpload, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u, ok := f.uploads[to.Upload]
	if !ok || u.repository != to.Repository {
		return freshUpload{}, false
	}
	delete(f.uploads, to.Upload)
	return u, true
}

// oneProcess says whether this process serves all requests.
func (r *Registry) oneProcess() bool { return r.db.Engine() == sqldb.SQLite }
