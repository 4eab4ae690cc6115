package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/exeunt/exeunt/backup"
	"github.com/exeunt/exeunt/sqldb"
)

// restoreNoted is how long after a restore each start mentions it.
const restoreNoted = 24 * time.Hour

// checkRestored refuses a data directory in which a restore has not ended.
func checkRestored(data string) error {
	mark := filepath.Join(data, backup.RestoringFile)
	if _, err := os.Stat(mark); err != nil {
		return nil
	}
	return fmt.Errorf("%s exists: a restore into this directory has not ended. Run exeunt restore-backup again, with the same flags", mark)
}

// noteRestore says that the database was restored from a backup: what clients know may be
// newer.
func noteRestore(ctx context.Context, db *sqldb.DB, revision int64, log *slog.Logger) {
	from, found, err := backup.RestoredFrom(ctx, db)
	if err != nil {
		log.Warn("it is not known whether the database was restored from a backup", "error", err)
	}
	if found && time.Since(from.At) < restoreNoted {
		log.Warn("the database was restored from a backup: objects may have gone back, and clients with a resource version from before get 410 and list again",
			"backup", from.ID, "restored", from.At.Format(time.RFC3339), "revision", revision)
	}
}
