package model_test

import (
	"errors"
	"fmt"
	"testing"
)

// The model of the registry's blobs: two clients push an image with the same blob, one tag goes, a
// review removes the blob's row, and an unlinker its bytes. Every upload has a path of its own. A
// client, the reviewer or the unlinker may die after every step.

const (
	pushStart    = iota
	pushUploaded // the bytes are synced at its own path
	pushLinked   // the blob's row is there: its own, or the one that was there
	pushDone     // the manifest is acknowledged
	pushRefused  // BLOB_UNKNOWN
	pushDead
)

// push is one client.
type push struct {
	at      int
	deleted bool // its manifest is deleted again
	late    bool // it waits longer than the promise of its upload lasts (existence_check)
}

// blobs is the database, the blob store and the processes.
type blobs struct {
	row   bool
	path  int     // of the row
	users int     // manifests
	bytes [3]bool // by path; 0 is not used
	// unlink is gc_unlink_queue.
	unlink [3]bool
	queued bool // in gc_blob_review_queue
	token  bool // the reviewer's claim

	pushes [2]push
	// reviewer: 0 idle, 1 claimed, 2 has the row FOR UPDATE and sees no user, 3 dead
	reviewer int
	// unlinker: 0 idle, i has taken path i, 3 has died
	unlinker int
	crashes  int // left
	deletes  int // left
	delays   int // left
}

const (
	ownPath     = "every upload has a path of its own"
	rowsFirst   = "the row goes before the bytes"
	lockBlob    = "a manifest locks its blob"
	postpone    = "an upload postpones the review"
	queueUnlink = "the path is queued in the transaction that deletes the row"
)

func blobModel(mutant string) walk[blobs] {
	return walk[blobs]{
		next: func(b blobs) []step[blobs] {
			steps := append(b.reviews(mutant), b.unlinks()...)
			for i := range b.pushes {
				steps = append(steps, b.push(i, mutant)...)
			}
			return steps
		},
		check: blobs.check,
	}
}

func (b blobs) check(done bool) error {
	if b.row && !b.bytes[b.path] {
		return errors.New("a row has no bytes")
	}
	if b.users > 0 && !b.row {
		return errors.New("an acknowledged manifest has no blob")
	}
	for i, p := range b.pushes {
		if p.at == pushRefused && !p.late {
			return fmt.Errorf("client %d is refused, and its upload was acknowledged", i)
		}
	}
	if !done {
		return nil
	}
	for path, there := range b.bytes {
		// The bytes of an upload whose client died have the row of the upload; the review of
		// abandoned uploads is not in the model.
		if there && !(b.row && b.path == path) && !b.uploading(path) {
			return errors.New("bytes are left that no row names")
		}
	}
	return nil
}

func (b blobs) uploading(path int) bool {
	p := b.pushes[path-1].at
	return p == pushUploaded || p == pushDead
}

// push is one client: upload, link, manifest, and perhaps a deletion.
func (b blobs) push(i int, mutant string) (steps []step[blobs]) {
	add := func(what string, change func(*blobs)) {
		to := b
		change(&to)
		steps = append(steps, step[blobs]{fmt.Sprintf("client %d %s", i, what), to})
	}
	own := i + 1
	if mutant == ownPath {
		own = 1
	}
	p := b.pushes[i]
	switch p.at {
	case pushStart:
		add("uploads", func(n *blobs) { n.bytes[own], n.pushes[i].at = true, pushUploaded })
	case pushUploaded:
		if b.reviewer != 2 { // the upsert waits for the reviewer's lock
			add("ends the upload", func(n *blobs) { n.link(i, own, mutant) })
		}
	case pushLinked:
		if b.delays > 0 && !p.late {
			add("waits for too long", func(n *blobs) { n.delays, n.pushes[i].late = n.delays-1, true })
		}
		if b.reviewer != 2 || mutant == lockBlob { // FOR KEY SHARE waits for the reviewer's lock
			add("pushes the manifest", func(n *blobs) {
				n.pushes[i].at = pushRefused
				if n.row {
					n.pushes[i].at, n.users = pushDone, n.users+1
				}
			})
		}
	case pushDone:
		if b.deletes > 0 && !p.deleted {
			add("deletes the manifest", func(n *blobs) {
				n.deletes--
				n.pushes[i].deleted = true
				n.users--
				n.queued, n.token = true, false // by trigger
			})
		}
	}
	if b.crashes > 0 && (p.at == pushUploaded || p.at == pushLinked) {
		add("dies", func(n *blobs) { n.crashes, n.pushes[i].at = n.crashes-1, pushDead })
	}
	return steps
}

// link makes the upload a blob: its path, or the one that is there; then its own bytes go. The
// review is postponed: the claim of one that has begun is cleared.
func (b *blobs) link(i, own int, mutant string) {
	b.pushes[i].at = pushLinked
	if !b.row {
		b.row, b.path = true, own
	} else if b.path != own {
		b.unlink[own] = true
	}
	b.queued = true
	if mutant != postpone {
		b.token = false
	}
}

// promised reports whether a client has uploaded the blob and may still push its manifest: reviews
// come later.
func (b blobs) promised() bool {
	for _, p := range b.pushes {
		if p.at == pushLinked && !p.late {
			return true
		}
	}
	return false
}

func (b blobs) reviews(mutant string) (steps []step[blobs]) {
	add := func(what string, change func(*blobs)) {
		to := b
		change(&to)
		steps = append(steps, step[blobs]{"the reviewer " + what, to})
	}
	switch b.reviewer {
	case 0:
		if b.queued && !b.token && !b.promised() {
			add("claims", func(n *blobs) { n.token, n.reviewer = true, 1 })
		}
	case 1:
		switch {
		case !b.token:
			add("finds its claim gone", func(n *blobs) { n.reviewer = 0 })
		case !b.row || b.users > 0:
			add("finds the blob gone or in use, and settles", func(n *blobs) { n.queued, n.token, n.reviewer = false, false, 0 })
		default:
			add("takes the blob and sees no user", func(n *blobs) { n.reviewer = 2 })
		}
	case 2:
		switch {
		case mutant == rowsFirst && b.bytes[b.path]:
			add("removes the bytes", func(n *blobs) { n.bytes[n.path] = false })
		default:
			add("deletes the row and commits", func(n *blobs) {
				n.unlink[n.path] = n.unlink[n.path] || mutant != queueUnlink
				n.row, n.path, n.reviewer = false, 0, 0
				if n.token {
					n.queued, n.token = false, false
				}
			})
		}
	}
	if b.crashes > 0 && (b.reviewer == 1 || b.reviewer == 2) {
		// Another replica takes over: here, the reviewer that begins again.
		add("dies", func(n *blobs) { n.crashes, n.reviewer, n.token = n.crashes-1, 0, false })
	}
	return steps
}

func (b blobs) unlinks() (steps []step[blobs]) {
	add := func(what string, change func(*blobs)) {
		to := b
		change(&to)
		steps = append(steps, step[blobs]{"the unlinker " + what, to})
	}
	if b.unlinker > 0 {
		add("removes the bytes and settles", func(n *blobs) { n.bytes[n.unlinker], n.unlink[n.unlinker], n.unlinker = false, false, 0 })
		if b.crashes > 0 {
			add("dies after it removed the bytes", func(n *blobs) { n.crashes, n.bytes[n.unlinker], n.unlinker = n.crashes-1, false, 0 })
		}
		return steps
	}
	for path, queued := range b.unlink {
		if queued {
			add(fmt.Sprintf("takes path %d", path), func(n *blobs) { n.unlinker = path })
		}
	}
	return steps
}

// TestBlobModel: an acknowledged manifest has its blob, a row has its bytes, a client that pushes
// its manifest in time is not refused, and in the end no bytes are left without a row.
func TestBlobModel(t *testing.T) {
	holds(t, blobs{crashes: 2, deletes: 2, delays: 1}, blobModel, map[string]string{
		ownPath:     "a row has no bytes",
		rowsFirst:   "a row has no bytes",
		lockBlob:    "has no blob",
		postpone:    "is refused",
		queueUnlink: "bytes are left",
	})
}
