// Package blobstoretest is the suite that every blob store passes. Begin with
// [Run].
package blobstoretest

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/exeunt/exeunt/registry/blobstore"
)

// World is a store under test.
type World struct {
	Store blobstore.Store
	// Reopen opens the same bytes as a new process would after a crash of the
	// first.
	Reopen func(t *testing.T) blobstore.Store
}

// Run runs the suite. Each test gets its own empty store from newWorld.
func Run(t *testing.T, newWorld func(t *testing.T) World) {
	tests := []struct {
		name string
		test func(*suite)
	}{
		{"written bytes are read", testWrite},
		{"reading begins at an offset", testOffset},
		{"every upload has its own path", testPaths},
		{"nothing is stored before the first write", testLazy},
		{"an upload of no bytes exists once it is finished", testEmpty},
		{"an upload is resumed where it ended", testResume},
		{"a large upload is resumed anywhere", testResumeLarge},
		{"unrecorded bytes do no harm", testResumeEarlier},
		{"an upload that stored nothing is resumed", testResumeNothing},
		{"one writer at a time", testBusy},
		{"a closed writer refuses", testClosed},
		{"remove", testRemove},
		{"a reader outlives the removal or fails", testRemoveWhileReading},
		{"foreign paths are refused", testForeign},
		{"synced bytes survive a restart", testReopen},
		{"the bytes of an unfinished upload are removed", testRemoveUnfinished},
		{"concurrent uploads", testConcurrent},
		{"walk lists what is stored", testWalk},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.test(&suite{T: t, World: newWorld(t)}) })
	}
}

type suite struct {
	*testing.T
	World
}

func (s *suite) create() blobstore.Writer {
	s.Helper()
	w, err := s.Store.Create(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return w
}

// resume continues the upload of another writer.
func (s *suite) resume(before blobstore.Writer) blobstore.Writer {
	s.Helper()
	w, err := s.Store.Resume(s.Context(), before.Path(), before.State())
	if err != nil {
		s.Fatal(err)
	}
	return w
}

func (s *suite) write(w blobstore.Writer, text string) {
	s.Helper()
	before := w.Size()
	n, err := io.WriteString(w, text)
	if err != nil || n != len(text) || w.Size() != before+int64(n) {
		s.Fatalf("wrote %d of %d bytes, size %d after %d: %v", n, len(text), w.Size(), before, err)
	}
}

// leave syncs and closes an upload, so that another writer can resume it.
func (s *suite) leave(w blobstore.Writer) {
	s.Helper()
	if err := errors.Join(w.Sync(), w.Close()); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) finish(w blobstore.Writer) {
	s.Helper()
	if err := errors.Join(w.Finish(), w.Close()); err != nil {
		s.Fatal(err)
	}
}

// put stores a text and returns its path.
func (s *suite) put(text string) string {
	s.Helper()
	w := s.create()
	s.write(w, text)
	s.finish(w)
	return w.Path()
}

func (s *suite) want(path, text string) {
	s.Helper()
	if size, err := s.Store.Stat(s.Context(), path); err != nil || size != int64(len(text)) {
		s.Errorf("size of %s is %d, want %d: %v", path, size, len(text), err)
	}
	if got := s.read(path, 0); got != text {
		s.Errorf("%s holds %q, want %q", path, got, text)
	}
}

func (s *suite) read(path string, offset int64) string {
	s.Helper()
	r, err := s.Store.Open(s.Context(), path, offset)
	if err != nil {
		s.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		s.Fatal(err)
	}
	return string(text)
}

func (s *suite) wantNothing(path string) {
	s.Helper()
	if size, err := s.Store.Stat(s.Context(), path); !errors.Is(err, blobstore.ErrNotFound) {
		s.Errorf("stat of nothing: %d, %v", size, err)
	}
	if r, err := s.Store.Open(s.Context(), path, 0); !errors.Is(err, blobstore.ErrNotFound) {
		s.Errorf("open of nothing: %v, %v", r, err)
	}
}

func testWrite(s *suite) {
	large := strings.Repeat("0123456789abcdef", 1<<16) // larger than a buffer
	w := s.create()
	for chunk := range slices.Chunk([]byte(large), 100_000) {
		s.write(w, string(chunk))
	}
	s.finish(w)
	s.want(w.Path(), large)
	s.want(s.put("x"), "x")
}

func testOffset(s *suite) {
	path := s.put("0123456789")
	for offset, want := range map[int64]string{0: "0123456789", 4: "456789", 9: "9", 10: ""} {
		if got := s.read(path, offset); got != want {
			s.Errorf("from %d: %q, want %q", offset, got, want)
		}
	}
	for _, offset := range []int64{-1, 11, 1 << 62} {
		if _, err := s.Store.Open(s.Context(), path, offset); !errors.Is(err, blobstore.ErrRange) {
			s.Errorf("from %d: %v", offset, err)
		}
	}
}

func testPaths(s *suite) {
	seen := map[string]bool{}
	for range 50 {
		path := s.put("the same")
		if seen[path] {
			s.Fatalf("%s was used twice", path)
		}
		seen[path] = true
	}
	for path := range seen {
		s.want(path, "the same")
	}
}

func testLazy(s *suite) {
	w := s.create()
	s.wantNothing(w.Path())
	if err := w.Close(); err != nil {
		s.Error(err)
	}
	s.wantNothing(w.Path())
}

func testEmpty(s *suite) {
	w := s.create()
	s.finish(w)
	s.want(w.Path(), "")
}

func testResume(s *suite) {
	w := s.create()
	path := w.Path()
	s.write(w, "one ")
	s.leave(w)
	for _, text := range []string{"two ", "", "three"} {
		next := s.resume(w)
		if next.Path() != path {
			s.Errorf("resumed %s as %s", path, next.Path())
		}
		s.write(next, text)
		s.leave(next)
		w = next
	}
	s.finish(s.resume(w)) // writes nothing
	s.want(path, "one two three")
}

// testResumeLarge closes and resumes an upload around sizes where stores change
// their layout.
func testResumeLarge(s *suite) {
	const mib = 1 << 20
	var all strings.Builder
	w := s.create()
	for i, size := range []int{5 * mib, 1, 5*mib - 1, 11*mib + 7, 3 * mib, 0, 1} {
		text := strings.Repeat(string(rune('a'+i)), size)
		all.WriteString(text)
		for len(text) > 0 {
			n := min(len(text), 300_000)
			s.write(w, text[:n])
			text = text[n:]
		}
		s.leave(w)
		w = s.resume(w)
		if w.Size() != int64(all.Len()) {
			s.Fatalf("resumed at %d of %d bytes", w.Size(), all.Len())
		}
	}
	s.finish(w)
	if size, err := s.Store.Stat(s.Context(), w.Path()); err != nil || size != int64(all.Len()) {
		s.Fatalf("size %d, want %d: %v", size, all.Len(), err)
	}
	for _, offset := range []int{0, 5*mib - 1, 5 * mib, 10 * mib, all.Len() - 1} {
		if s.read(w.Path(), int64(offset)) != all.String()[offset:] {
			s.Errorf("what is read from %d on is not what was written", offset)
		}
	}
}

// testResumeEarlier: a process wrote, and died before the registry recorded
// that. The next writer continues at the recorded size, or after the stored
// bytes if they can be read, or fails.
func testResumeEarlier(s *suite) {
	for _, recorded := range []string{"", "recorded ", strings.Repeat("recorded ", 1<<20)} {
		for _, lost := range []string{"lost", strings.Repeat("lost", 2<<20)} {
			w := s.create()
			s.write(w, recorded)
			s.leave(w)
			before := w
			w = s.resume(before)
			s.write(w, lost)
			s.leave(w)
			w = s.resume(before) // from the state before the last Sync
			text := (recorded + lost)[:w.Size()]
			if w.Size() < int64(len(recorded)) {
				s.Fatalf("resumed at %d, before the %d that were recorded", w.Size(), len(recorded))
			}
			_, err := io.WriteString(w, "found")
			if err == nil {
				err = w.Finish()
			}
			if err == nil {
				s.want(w.Path(), text+"found")
			} else if !errors.Is(err, blobstore.ErrGone) {
				s.Errorf("after %d recorded and %d lost bytes: %v", len(recorded), len(lost), err)
			}
			if err := w.Close(); err != nil {
				s.Error(err)
			}
		}
	}
}

func testResumeNothing(s *suite) {
	w := s.create()
	if err := w.Close(); err != nil {
		s.Fatal(err)
	}
	next := s.resume(w)
	if next.Size() != 0 {
		s.Errorf("size %d", next.Size())
	}
	s.write(next, "late")
	s.finish(next)
	s.want(w.Path(), "late")
}

func testBusy(s *suite) {
	w := s.create()
	s.write(w, "mine")
	if other, err := s.Store.Resume(s.Context(), w.Path(), w.State()); !errors.Is(err, blobstore.ErrBusy) {
		s.Errorf("a second writer: %v, %v", other, err)
	}
	if err := w.Sync(); err != nil { // a writer can go on after a sync
		s.Error(err)
	}
	s.write(w, " still")
	s.leave(w)
	s.finish(s.resume(w))
	s.want(w.Path(), "mine still")
}

func testClosed(s *suite) {
	w := s.create()
	s.write(w, "a")
	s.finish(w)
	if err := w.Close(); err != nil {
		s.Errorf("closed twice: %v", err)
	}
	if _, err := w.Write([]byte("b")); err == nil {
		s.Error("wrote after close")
	}
	if err := w.Sync(); err == nil {
		s.Error("synced after close")
	}
	if err := w.Finish(); err == nil {
		s.Error("finished after close")
	}
	s.want(w.Path(), "a")
}

func testRemove(s *suite) {
	path, other := s.put("gone"), s.put("kept")
	for range 2 { // the second finds nothing
		if err := s.Store.Remove(s.Context(), path); err != nil {
			s.Fatal(err)
		}
		s.wantNothing(path)
	}
	s.want(other, "kept")
}

// testRemoveUnfinished: Remove leaves nothing, and nothing comes back.
func testRemoveUnfinished(s *suite) {
	walker, ok := s.Store.(blobstore.Walker)
	if !ok {
		s.Fatalf("a %T cannot be walked", s.Store)
	}
	for _, size := range []int{1, 13 << 20} {
		w := s.create()
		s.write(w, strings.Repeat("x", size))
		s.leave(w)
		if got := walk(s.T, walker); len(got) != 1 {
			s.Errorf("with an upload of %d bytes: %v", size, got)
		}
		if err := s.Store.Remove(s.Context(), w.Path()); err != nil {
			s.Fatal(err)
		}
		if got := walk(s.T, walker); len(got) != 0 {
			s.Errorf("after the removal of an upload of %d bytes: %v", size, got)
		}
		s.wantNothing(w.Path())
	}
}

func testRemoveWhileReading(s *suite) {
	text := strings.Repeat("bytes ", 100_000)
	path := s.put(text)
	r, err := s.Store.Open(s.Context(), path, 0)
	if err != nil {
		s.Fatal(err)
	}
	head := make([]byte, 6)
	if _, err := io.ReadFull(r, head); err != nil {
		s.Fatal(err)
	}
	if err := s.Store.Remove(s.Context(), path); err != nil {
		s.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if got := string(head) + string(rest); err == nil && got != text || !strings.HasPrefix(text, got) {
		s.Errorf("read %d of %d bytes, without an error", len(got), len(text))
	}
	if err := r.Close(); err != nil {
		s.Error(err)
	}
}

func testForeign(s *suite) {
	own := s.put("own")
	for _, path := range []string{
		"", ".", "..", "/", "../" + own, own + "/..", "/" + own, own + "\x00", own + "x", own[1:], strings.ToUpper(own) + "A",
		"../../../../etc/passwd", "/etc/passwd", strings.Repeat("a", len(own)), strings.Repeat("../", 20),
	} {
		_, opened := s.Store.Open(s.Context(), path, 0)
		_, stat := s.Store.Stat(s.Context(), path)
		_, resumed := s.Store.Resume(s.Context(), path, nil)
		for verb, err := range map[string]error{
			"open": opened, "stat": stat, "resume": resumed, "remove": s.Store.Remove(s.Context(), path),
		} {
			if !errors.Is(err, blobstore.ErrPath) {
				s.Errorf("%s %q: %v", verb, path, err)
			}
		}
	}
	s.want(own, "own")
}

func testReopen(s *suite) {
	done := s.put("done")
	w := s.create()
	s.write(w, "half")
	if err := w.Sync(); err != nil {
		s.Fatal(err)
	}
	s.Store = s.Reopen(s.T) // w is never closed
	s.want(done, "done")
	next := s.resume(w)
	if next.Size() != 4 {
		s.Fatalf("resumed at %d", next.Size())
	}
	s.write(next, " more")
	s.finish(next)
	s.want(w.Path(), "half more")
}

func testConcurrent(s *suite) {
	var running sync.WaitGroup
	paths := make([]string, 32)
	for i := range paths {
		running.Go(func() {
			w, err := s.Store.Create(s.Context())
			if err != nil {
				s.Error(err)
				return
			}
			_, err = io.WriteString(w, strings.Repeat(string(rune('a'+i%26)), 10_000))
			if err := errors.Join(err, w.Finish(), w.Close()); err != nil {
				s.Error(err)
			}
			paths[i] = w.Path()
		})
	}
	running.Wait()
	for i, path := range paths {
		s.want(path, strings.Repeat(string(rune('a'+i%26)), 10_000))
	}
}
