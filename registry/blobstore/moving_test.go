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
