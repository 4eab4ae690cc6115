package main

import (
	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/backup"
)

func newRestoreBackup() *cobra.Command {
	var s backup.Server
	var id string
	var format output
	cmd := &cobra.Command{
		Use:   "restore-backup DIR|s3://BUCKET/PREFIX --data DIR",
		Short: "Make the data of a new server from a backup",
		Long: `Make the data directory, the database and the blob storage of a new server from a
backup. All of them must be new or empty. Then start the server with the same --data,
--database and --registry-storage.

Resource versions jump far ahead, so that none is issued a second time: clients that know
an older one get 410 (Expired) from watches and lists, and list again.

After an interruption, run the same command again; until then no server starts on the
directory. To restore deleted objects of a running server: "exeunt restore --help".`,
		Example: `  exeunt restore-backup /srv/backup --data /var/lib/exeunt
  exeunt restore-backup s3://backups/exeunt --data ./data --database postgres://exeunt@db.example/new --registry-storage s3://new-blobs`,
		Args: exactly(1, "the directory or bucket that has the backup"),
		RunE: withTarget(false, func(cmd *cobra.Command, target *backup.Target) error {
			m, err := target.Find(cmd.Context(), id)
			if err != nil {
				return err
			}
			p := newStepLine(cmd)
			revision, err := backup.Restore(cmd.Context(), target, m, s, showBackup(p))
			p.clear()
			if err != nil {
				return err
			}
			done := restoredBackup{m.ID, revision, m.Blobs, m.Size()}
			return format.print(cmd.OutOrStdout(), document{value: done, text: func(p *printer) {
				p.line("restored backup %s: %s, %s", done.ID, counted(done.Blobs, "blob"), humanBytes(done.Bytes))
				p.line("resource versions continue after %d; clients with older ones get 410 and list again", done.Revision)
			}})
		}),
	}
	addPlaces(cmd, &s.Data, &s.Database, &s.Storage)
	cmd.Flags().Lookup("data").Usage = "the new server's data directory"
	cmd.Flags().StringVar(&id, "backup", "", "the `ID` of the backup (default: the newest)")
	format.addFlag(cmd)
	return withBackupCodes(cmd)
}

// restoredBackup is the result for scripts.
type restoredBackup struct {
	ID       string `json:"id"`
	Revision int64  `json:"revision"` // the next write gets a higher one
	Blobs    int    `json:"blobs"`
	Bytes    int64  `json:"bytes"`
}
