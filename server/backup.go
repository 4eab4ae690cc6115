package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/backup"
	"github.com/exeunt/exeunt/deletion"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/object"
	registryv1 "github.com/exeunt/exeunt/registry/v1"
)

// backups makes a backup whenever the last one of the database is older than Config.BackupEvery, and says when the next
// one is due. Backups that an operator made count too. On PostgreSQL the replica that takes the hold on the registry's
// bytes makes it.
type backups struct {
	*server
	born atomic.Int64 // when the database was made, in Unix seconds; 0 if not read yet
}

const (
	// backupRound is how often a replica looks, because another one may have made the backup.
	backupRound = time.Minute
	// backupRetry is the pause after a failure.
	backupRetry = 10 * time.Minute
	// backupUsual is how old the last backup may be if the server makes none itself.
	backupUsual = 24 * time.Hour
	// backupLate is how late a backup may be before that is a problem: it takes time, too.
	backupLate = time.Hour
)

func (b *backups) run(ctx context.Context) {
	for wait := time.Duration(0); task.Sleep(ctx, wait); {
		last, found, err := backup.Last(ctx, b.db)
		if left := b.config.BackupEvery - time.Since(last.At); err == nil && found && left > 0 {
			wait = min(left, backupRound)
			continue
		}
		if err == nil {
			err = b.create(ctx)
		}
		switch wait = backupRound; {
		case errors.Is(err, backup.ErrBusy) || ctx.Err() != nil: // another replica, or a command
		case err != nil:
			wait = min(backupRetry, b.config.BackupEvery)
			b.config.Logger.Error("backup failed", "to", b.config.BackupTo, "error", err, "retry", wait)
		}
	}
}

func (b *backups) create(ctx context.Context) error {
	target, err := backup.OpenTarget(ctx, b.config.BackupTo, true)
	if err != nil {
		return err
	}
	c := b.config
	from := backup.Server{Data: c.Data, Database: c.Database, Storage: c.RegistryStorage, EncryptionConfig: c.EncryptionConfig}
	made, err := backup.Create(ctx, from, target, backup.CreateOptions{Version: c.Version, Recipients: c.BackupRecipients})
	if err != nil {
		return err
	}
	c.Logger.Info("backup made", "id", made.ID, "to", c.BackupTo, "bytes", made.Size(), "copied", made.CopiedBytes, "warning", made.Warning)
	if c.BackupKeep <= 0 {
		return nil
	}
	if _, err := target.Prune(ctx, c.BackupKeep); err != nil && !errors.Is(err, backup.ErrBusy) {
		c.Logger.Warn("old backups stay", "to", c.BackupTo, "error", err)
	}
	return nil
}

// due returns the last whole backup, and when the next one must have ended at the latest. A new database has as long.
func (b *backups) due(ctx context.Context) (last *time.Time, due time.Time, err error) {
	record, found, err := backup.Last(ctx, b.db)
	if err != nil {
		return nil, due, err
	}
	from := record.At.UTC()
	if found {
		last = &from
	} else if from, err = b.birth(ctx); err != nil {
		return nil, due, err
	}
	every := backupUsual
	if b.config.BackupTo != "" {
		every = b.config.BackupEvery
	}
	return last, from.Add(every + backupLate), nil
}

// birth is when the first start made the Namespace default, which is never removed.
func (b *backups) birth(ctx context.Context) (time.Time, error) {
	if at := b.born.Load(); at != 0 {
		return time.Unix(at, 0).UTC(), nil
	}
	o, err := b.store.Get(ctx, object.Key{Kind: "namespaces", Name: metav1.NamespaceDefault})
	if err != nil {
		return time.Time{}, fmt.Errorf("read when the database was made: %w", err)
	}
	var made metav1.PartialObjectMetadata
	if err := json.Unmarshal(o.Body, &made); err != nil {
		return time.Time{}, fmt.Errorf("read when the database was made: %w", err)
	}
	b.born.Store(made.CreationTimestamp.Unix())
	return made.CreationTimestamp.UTC(), nil
}

// checkBackups refuses settings that make no backups.
func checkBackups(c Config) error {
	if c.BackupTo != "" && c.BackupEvery < time.Minute {
		return fmt.Errorf("--backup-every %v: at least a minute", c.BackupEvery)
	}
	if err := backup.CheckRecipients(c.BackupRecipients); err != nil {
		return fmt.Errorf("--backup-recipients: %w", err)
	}
	return nil
}

// DescribeBackup is how far a backup is, for people.
func DescribeBackup(p backup.Progress) string {
	text := p.Step
	if p.Total > 0 {
		text += fmt.Sprintf(": %d of %d %s", p.Done, p.Total, deletion.Plural(p.Total, "blob"))
	}
	if p.Bytes > 0 {
		text += ", " + registryv1.Size(p.Bytes) + "B"
	}
	return text
}
