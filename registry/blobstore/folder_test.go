package blobstore

import (
	"errors"
	"sync"
	"testing"
)

// TestGroupSyncBeginsAfterItWasAsked forces the critical interleaving: a call
// during a run must not get that run's result.
func TestGroupSyncBeginsAfterItWasAsked(t *testing.T) {
	var g groupSync
	running, finish := make(chan struct{}), make(chan struct{})
	failed := errors.New("the first run")
	first := make(chan error)
	go func() {
		first <- g.do(func() error {
			close(running)
			<-finish
			return failed
		})
	}()
	<-running
	runs := 0
	var late sync.WaitGroup
	for range 8 {
		late.Go(func() {
			if err := g.do(func() error { runs++; return nil }); err != nil {
				t.Errorf("a late call got the result of %v", err)
			}
		})
	}
	for joined := false; !joined; { // until one of them starts the next run
		g.mu.Lock()
		joined = g.next != nil
		g.mu.Unlock()
	}
	close(finish)
	if err := <-first; !errors.Is(err, failed) {
		t.Errorf("the first call got %v", err)
	}
	late.Wait()
	if runs == 0 {
		t.Error("nothing ran for the late calls")
	}
}

func TestUploadsInARowShareAFolder(t *testing.T) {
	var r rotation
	seen := map[byte]int{}
	for range folders * filesInARow {
		seen[r.next()]++
	}
	if len(seen) != folders {
		t.Errorf("%d folders are used, want %d", len(seen), folders)
	}
	for folder, n := range seen {
		if n != filesInARow {
			t.Errorf("folder %02x gets %d in a row, want %d", folder, n, filesInARow)
		}
	}
}
