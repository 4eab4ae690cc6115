package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/verify"
	"github.com/exeunt/exeunt/sqldb"
)

// VerifyRegistry checks the registry in a database and a blob store, with or without a
// running server. It creates neither of them.
func VerifyRegistry(ctx context.Context, c Config, o verify.Options) (sum verify.Result, err error) {
	c = c.withDefaults()
	for what, place := range map[string]string{"--database": c.Database, "--registry-storage": c.RegistryStorage} {
		if strings.Contains(place, "://") {
			continue
		}
		if _, err := os.Stat(place); err != nil {
			return sum, fmt.Errorf("%s: %w: say where the server has it, or --data", what, err)
		}
	}
	db, err := sqldb.Open(ctx, c.Database)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	blobs, err := openBlobs(ctx, c)
	if err != nil {
		return sum, err
	}
	if marked, ok := blobs.(blobstore.Marked); ok {
		if err := registry.CheckBlobStore(ctx, db, marked); err != nil {
			return sum, fmt.Errorf("--registry-storage %s: %w", c.RegistryStorage, err)
		}
	}
	return verify.Run(ctx, db, blobs, o)
}
