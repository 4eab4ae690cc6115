package blobstore_test

import (
	"testing"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/blobstore/blobstoretest"
	"github.com/exeunt/exeunt/registry/blobstore/s3test"
)

func TestMoving(t *testing.T) {
	blobstoretest.Run(t, func(t *testing.T) blobstoretest.World {
		location := s3test.Location(t) + ",from=" + t.TempDir()
		return blobstoretest.World{
			Store:  openAt(t, location),
			Reopen: func(t *testing.T) blobstore.Store { return openAt(t, location) },
		}
	})
}

// TestPartSizeOfMoving: uploads that begin during a move have parts that the new place takes.
func TestPartSizeOfMoving(t *testing.T) {
	type parted interface{ PartSize() int64 }
	location := s3test.Location(t)
	want := openAt(t, location).(parted).PartSize()
	if got := openAt(t, location+",from="+t.TempDir()).(parted).PartSize(); got != want || want == 0 {
		t.Errorf("parts of %d bytes, want %d", got, want)
	}
}
