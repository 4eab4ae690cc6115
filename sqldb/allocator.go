package sqldb

import (
	"sync"

	"modernc.org/libc"
)

// keepPages takes a block on some pages of every size that SQLite's allocator
// has pages for, and never gives it back.
//
// The allocator returns a page to the system as soon as nothing on it is in use.
// Many of SQLite's blocks live for a moment only: the frame of a trigger, alone on
// its page, and the copies of what a statement changes, which fill several. So
// each trigger that fired, and each row that was inserted, mapped a page and
// unmapped it again: a sixth of the CPU time of a cascade, and a twelfth of a
// create's. With a block that stays on it the page stays too. It costs a MiB.
var keepPages = sync.OnceFunc(func() {
	const (
		smallest, largest = 4, 14 // powers of two; larger blocks have pages of their own
		copies            = 11    // a changed page is copied in pieces of a KiB and their heads
	)
	tls := libc.NewTLS()
	defer tls.Close()
	for size := smallest; size <= largest; size++ {
		keepPagesOf(tls, size, 1)
	}
	keepPagesOf(tls, copies, 4)
})

// keepPagesOf keeps one block of a size, a power of two, on each of some pages.
func keepPagesOf(tls *libc.TLS, size, pages int) {
	const pageSize = 1 << 16
	kept := map[uintptr]bool{}
	var rest []uintptr
	for len(kept) < pages {
		block := libc.Xmalloc(tls, 1<<size)
		if page := block &^ (pageSize - 1); !kept[page] {
			kept[page] = true
		} else {
			rest = append(rest, block)
		}
	}
	for _, block := range rest {
		libc.Xfree(tls, block)
	}
}
