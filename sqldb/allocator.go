package sqldb

import (
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite's allocator returns memory to the system as soon as nothing near it is
// in use. Many of SQLite's blocks live for a moment only: the frames of triggers,
// the copies of what a statement changes, rows, the pages of temporary tables. So
// each row that was inserted or removed mapped memory and unmapped it again, which
// was a third of the CPU time of writing. What is kept here is a few MiB, most of
// which SQLite's page caches would take anyway.
var keepMemory = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	defer tls.Close()
	if err := keepPageCache(tls); err != nil {
		return err
	}
	if err := keepFreed(tls); err != nil {
		return err
	}
	keepPages(tls)
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

// keepFreed has SQLite allocate through kept. Must come before SQLite is used.
func keepFreed(tls *libc.TLS) error {
	methods := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_mem_methods{})))
	if methods == 0 {
		return fmt.Errorf("no memory for SQLite's allocator")
	}
	defer libc.Xfree(tls, methods)
	*at[sqlite3.Tsqlite3_mem_methods](methods) = sqlite3.Tsqlite3_mem_methods{
		FxMalloc:   function(blockMalloc),
		FxFree:     function(blockFree),
		FxRealloc:  function(blockRealloc),
		FxSize:     function(blockSize),
		FxRoundup:  function(blockRoundup),
		FxInit:     function(func(*libc.TLS, uintptr) int32 { return sqlite3.SQLITE_OK }),
		FxShutdown: function(func(*libc.TLS, uintptr) {}),
	}
	args := libc.Xmalloc(tls, 64)
	defer libc.Xfree(tls, args)
	if rc := sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_MALLOC, libc.VaList(args, methods)); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("SQLite's allocator: code %d", rc)
	}
	return nil
}

// function is a function as the translated SQLite calls it: what a Go value of
// a function type points at. That of one that captures nothing is never moved or
// freed.
func function(f any) uintptr { return (*[2]uintptr)(unsafe.Pointer(&f))[1] }

// at is what is at an address of memory that is not Go's.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// A block is a power of two long, up to a limit. Its first word says how much of
// it SQLite can use.
const (
	blockHeader   = 8
	smallestBlock = 5  // 32 bytes
	largestBlock  = 17 // 128 KiB; larger ones are few, and not kept
	keptBytes     = 128 << 10
	keptLeast     = 4 // blocks, however large
	// What a statement changes is copied to blocks of this length, and all of them
	// are freed when it ends: 512 are the copies of 128 pages.
	journalBlock, keptJournal = 11, 512
)

// mostKept is how many blocks of a length are kept.
func mostKept(log int) int {
	if log == journalBlock {
		return keptJournal
	}
	return max(keptBytes>>log, keptLeast)
}

// kept are blocks that SQLite has freed and will soon want again, by the
// logarithm of their length.
var kept struct {
	sync.Mutex
	blocks [largestBlock + 1][]uintptr
}

// blockLength is how long a block for n bytes is, and its logarithm: 0 for one
// that is not kept.
func blockLength(n int32) (length int, log int) {
	length = int(n) + blockHeader
	log = max(bits.Len(uint(length-1)), smallestBlock)
	if log > largestBlock {
		return length, 0
	}
	return 1 << log, log
}

func blockMalloc(tls *libc.TLS, n int32) uintptr {
	length, log := blockLength(n)
	block := takeKept(log)
	if block == 0 {
		if block = libc.Xmalloc(tls, libc.Tsize_t(length)); block == 0 {
			return 0
		}
		*at[int64](block) = int64(length - blockHeader)
	}
	return block + blockHeader
}

func takeKept(log int) uintptr {
	kept.Lock()
	defer kept.Unlock()
	list := kept.blocks[log]
	if len(list) == 0 {
		return 0
	}
	block := list[len(list)-1]
	kept.blocks[log] = list[:len(list)-1]
	return block
}

func blockFree(tls *libc.TLS, p uintptr) {
	block := p - blockHeader
	if _, log := blockLength(blockSize(tls, p)); log == 0 || !keep(block, log) {
		libc.Xfree(tls, block)
	}
}

// keep reports whether there was room.
func keep(block uintptr, log int) bool {
	kept.Lock()
	defer kept.Unlock()
	if len(kept.blocks[log]) >= mostKept(log) {
		return false
	}
	kept.blocks[log] = append(kept.blocks[log], block)
	return true
}

func blockRealloc(tls *libc.TLS, p uintptr, n int32) uintptr {
	old := blockSize(tls, p)
	if n <= old && blockRoundup(tls, n) == old {
		return p
	}
	q := blockMalloc(tls, n)
	if q != 0 {
		libc.Xmemcpy(tls, q, p, libc.Tsize_t(min(old, n)))
		blockFree(tls, p)
	}
	return q
}

func blockSize(_ *libc.TLS, p uintptr) int32 {
	return int32(*at[int64](p - blockHeader))
}

func blockRoundup(_ *libc.TLS, n int32) int32 {
	length, log := blockLength(n)
	if log == 0 {
		return (n + 7) &^ 7
	}
	return int32(length - blockHeader)
}

// keepPages takes a block on one of the pages of libc's allocator for each size
// of block, and never gives it back: a page with a block in use stays. The
// driver copies the arguments of statements there.
func keepPages(tls *libc.TLS) {
	const smallest, largest = 4, 14 // powers of two; yet larger blocks have pages of their own
	for size := smallest; size <= largest; size++ {
		libc.Xmalloc(tls, 1<<size)
	}
}
