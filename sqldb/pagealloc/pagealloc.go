// Package pagealloc is an allocator for modernc's SQLite. It promises less CPU time
// for writes, for a few MiB of memory; it knows nothing of databases.
//
// The allocator of modernc.org/libc returns memory to the system as soon as a page
// of it is free. Many of SQLite's blocks are short-lived: frames of triggers, copies
// of the pages that a statement changes, rows, pages of temporary tables. So each
// inserted or removed row mapped memory and unmapped it again, which took a third of
// the CPU time of writing. This package keeps a few MiB of freed blocks, most of which
// SQLite's page caches would take anyway.
//
// The price is unsafe code that knows the layout of the translated SQLite. If it is
// under suspicion (a new version of modernc.org/sqlite, a crash inside SQLite), set
// the environment variable EXEUNT_SQLITE_ALLOCATOR=off: SQLite then uses libc's
// allocator, and nothing else changes. BenchmarkRows measures the gain (on two cores
// 60 ms with the allocator, 130 to 160 ms without):
//
//	go test ./sqldb/pagealloc -run '^$' -bench Rows
//	EXEUNT_SQLITE_ALLOCATOR=off go test ./sqldb/pagealloc -run '^$' -bench Rows
package pagealloc

import (
	"fmt"
	"math/bits"
	"os"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// Switch is the environment variable that turns the allocator off.
const Switch = "EXEUNT_SQLITE_ALLOCATOR"

// Install makes SQLite use this allocator, once for the process. Call it before
// SQLite is used.
func Install() error { return install() }

var install = sync.OnceValue(func() error {
	on, err := enabled(os.Getenv(Switch))
	if err != nil || !on {
		return err
	}
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

func enabled(value string) (bool, error) {
	switch value {
	case "", "on":
		return true, nil
	case "off":
		return false, nil
	}
	return false, fmt.Errorf("%s is %q: set it to on or off", Switch, value)
}

// keepPageCache gives SQLite memory for database pages, once for all connections.
// Without it each page takes a block of twice its size. When the memory is full,
// SQLite allocates more. Call it before SQLite is used.
func keepPageCache(tls *libc.TLS) error {
	const (
		pages    = 1280 // for the writer's cache and a part of the readers'
		pageSize = 4096
	)
	args := libc.Xmalloc(tls, 64)
	defer libc.Xfree(tls, args)
	header := libc.Xcalloc(tls, 1, 8)
	defer libc.Xfree(tls, header)
	if rc := sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_PCACHE_HDRSZ, libc.VaList(args, header)); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("size of a page in SQLite's cache: code %d", rc)
	}
	slot := pageSize + libc.AtomicLoadPInt32(header)
	memory := libc.Xmalloc(tls, libc.Tsize_t(slot*pages))
	if memory == 0 {
		return fmt.Errorf("no memory for SQLite's page cache")
	}
	if rc := sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_PAGECACHE, libc.VaList(args, memory, slot, int32(pages))); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("memory for SQLite's page cache: code %d", rc)
	}
	return nil
}

// keepFreed makes SQLite allocate through kept. Call it before SQLite is used.
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

// function converts a Go function to the pointer by which the translated SQLite
// calls it. f must capture nothing: then its pointer is never moved or freed.
func function(f any) uintptr { return (*[2]uintptr)(unsafe.Pointer(&f))[1] }

// at converts an address outside of Go's memory to a pointer.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// The length of a block is a power of two, up to a limit. Its first word holds how
// many bytes of it SQLite can use.
const (
	blockHeader   = 8
	smallestBlock = 5  // 32 bytes
	largestBlock  = 17 // 128 KiB; larger ones are few, and not kept
	keptBytes     = 128 << 10
	keptLeast     = 4 // blocks of each length, also of large ones
	// SQLite copies the pages that a statement changes to blocks of this length,
	// and frees them when the statement ends: 512 blocks are 128 pages.
	journalBlock, keptJournal = 11, 512
)

// mostKept is how many blocks of a length are kept at most.
func mostKept(log int) int {
	if log == journalBlock {
		return keptJournal
	}
	return max(keptBytes>>log, keptLeast)
}

// kept are blocks that SQLite has freed, for its next allocations, by the
// logarithm of their length.
var kept struct {
	sync.Mutex
	blocks [largestBlock + 1][]uintptr
}

// blockLength is the length of a block for n bytes, and its logarithm: 0 if such a
// block is not kept.
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

// keep reports false if there is no room for the block.
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

// keepPages allocates one block of each size from libc and never frees it, so that
// libc keeps one page for each size. The driver copies the arguments of
// statements to such blocks.
func keepPages(tls *libc.TLS) {
	const smallest, largest = 4, 14 // powers of two; larger blocks have pages of their own
	for size := smallest; size <= largest; size++ {
		libc.Xmalloc(tls, 1<<size)
	}
}
