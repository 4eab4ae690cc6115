package sqldb

import (
	"fmt"
	"sync"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite's allocator returns memory to the system as soon as nothing near it is
// in use. Many of SQLite's blocks live for a moment only: the frames of triggers,
// the copies of what a statement changes, the pages of temporary tables. So each
// row that was inserted or removed mapped memory and unmapped it again, which
// was a third of the CPU time of writing. What is kept here is a few MiB, most of
// which SQLite's page caches would take anyway.
var keepMemory = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	defer tls.Close()
	if err := keepPageCache(tls); err != nil {
		return err
	}
	keepBlocks(tls)
	return nil
})

// keepPageCache gives SQLite memory for database pages, once for all connections.
// Without it each page takes a block of twice its size. When it is full SQLite
// allocates more, as it would have. Must come before SQLite is used.
func keepPageCache(tls *libc.TLS) error {
	const (
		pages    = 1280 // the writer's cache, and what readers take of theirs
		pageSize = 4096
	)
	args := libc.Xmalloc(tls, 64)
	defer libc.Xfree(tls, args)
	header := libc.Xcalloc(tls, 1, 8)
	defer libc.Xfree(tls, header)
	if rc := sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_PCACHE_HDRSZ, libc.VaList(args, header)); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("size of a page in SQLite's cache: code %d", rc)
	}
	slot := pageSize + int32(libc.AtomicLoadPInt32(header))
	memory := libc.Xmalloc(tls, libc.Tsize_t(slot*pages))
	if memory == 0 {
		return fmt.Errorf("no memory for SQLite's page cache")
	}
	if rc := sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_PAGECACHE, libc.VaList(args, memory, slot, int32(pages))); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("memory for SQLite's page cache: code %d", rc)
	}
	return nil
}

// keepBlocks takes a block on some of the allocator's pages for each size of
// block, and never gives it back: a page with a block in use stays. Large blocks
// are few on a page, so several are kept.
func keepBlocks(tls *libc.TLS) {
	const smallest, large, largest = 4, 11, 14 // powers of two; yet larger blocks have pages of their own
	for size := smallest; size < large; size++ {
		keepPagesOf(tls, size, 1)
	}
	for size := large; size <= largest; size++ {
		keepPagesOf(tls, size, 4)
	}
}

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
