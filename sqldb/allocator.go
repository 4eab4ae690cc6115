package sqldb

import (
	"sync"

	"modernc.org/libc"
)

// keepPages takes one block of every size that SQLite's allocator has pages
// for, and never gives it back.
//
// The allocator returns a page to the system as soon as nothing on it is in use.
// Some of SQLite's blocks are alone on theirs and live for a moment only, among
// them the frame of a trigger: so each trigger that fired mapped a page and
// unmapped it again, which was a sixth of the CPU time of a cascade. With a block
// that stays on it the page stays too. It costs less than a MiB.
var keepPages = sync.OnceFunc(func() {
	const smallest, largest = 4, 14 // powers of two; larger blocks have pages of their own
	tls := libc.NewTLS()
	for log := smallest; log <= largest; log++ {
		libc.Xmalloc(tls, 1<<log)
	}
	tls.Close()
})
