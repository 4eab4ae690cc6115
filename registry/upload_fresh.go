package registry

import (
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/sqldb"
)

// fresh keeps uploads that have begun and that nothing has been sent to. They
// hold nothing, so there is nothing that could be lost or left behind: a row
// for each would be one more commit for every blob. It is written when the
// first bytes come; and a small blob that comes whole never needs one.
//
// They are kept in memory, where all requests are served by one process: on
// SQLite. A restart forgets them, and a client is told to begin again, as it
// has to be ready for whenever an upload has expired.
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
	// freshKept bounds the memory of all: past it, the old ones go, and if
	// there are none, rows are written again.
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

// find finds an upload of a repository. Take also forgets it: whoever has
// taken it is the only one that has it.
func (f *fresh) find(to Request) (freshUpload, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u, ok := f.uploads[to.Upload]
	return u, ok && u.repository == to.Repository
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

// oneProcess says whether all requests come to this process.
func (r *Registry) oneProcess() bool { return r.db.Engine() == sqldb.SQLite }
