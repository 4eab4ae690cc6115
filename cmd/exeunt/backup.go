package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/backup"
	"github.com/exeunt/exeunt/cmd/exeunt/settings"
	"github.com/exeunt/exeunt/server"
)

// The exit codes of backups, for cron.
const (
	exitUsage   = 2 // unknown flags or arguments: a retry does not help
	exitDamaged = 3 // a backup has lost bytes
)

const backupCodes = `
The exit code is 0 if all went well, 1 if it failed, 2 if flags or arguments are wrong,
and 3 if a backup is damaged.`

// withBackupCodes sets the exit codes of a command and of those below it.
func withBackupCodes(cmd *cobra.Command) *cobra.Command {
	usage := func(err error) error {
		if err == nil {
			return nil
		}
		return codedError{err, exitUsage}
	}
	eachCommand(cmd, func(c *cobra.Command) {
		c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
		if args := c.Args; args != nil {
			c.Args = func(cmd *cobra.Command, given []string) error { return usage(args(cmd, given)) }
		}
		if run := c.RunE; run != nil {
			c.Long += "\n" + backupCodes
			c.RunE = func(cmd *cobra.Command, args []string) error {
				err := run(cmd, args)
				if errors.Is(err, backup.ErrDamaged) {
					return codedError{err, exitDamaged}
				}
				return err
			}
		}
	})
	return cmd
}

func newBackup() *cobra.Command {
	cmd := &cobra.Command{Use: "backup", Short: "Back a server up, and look after its backups"}
	cmd.AddCommand(newBackupCreate(), newBackupList(), newBackupVerify(), newBackupPrune(), newBackupRestore())
	return withBackupCodes(cmd)
}

// places are the settings that say where the data of a server is.
var places = []string{settings.ConfigFlag, "data", "database", "registry-storage", "encryption-provider-config"}

// addPlaces adds the flags that say where the data of a server is, and returns the configuration of that server, which is
// read before the command runs: what the flags leave out is in the file of --config, or in the environment (EXEUNT_DATABASE).
func addPlaces(cmd *cobra.Command, storage bool) *server.Config {
	c, f := &server.Config{}, cmd.Flags()
	f.String(settings.ConfigFlag, "", "take these settings from the server's configuration `FILE` and its environment; flags win")
	f.String("data", "./data", "the server's data directory")
	f.String("database", "", "postgres:// URL, or path of a SQLite file (default exeunt.db in the data directory)")
	if storage {
		f.String("registry-storage", "", "where the registry stores bytes: a `directory` (default blobs in the data directory), or s3://BUCKET/PREFIX")
	}
	cmd.PersistentPreRunE = func(*cobra.Command, []string) (err error) { // PreRunE is that of the output
		given := givenFlags(f)
		maps.DeleteFunc(given, func(name, _ string) bool { return !slices.Contains(places, name) })
		*c, err = readConfig(cmd.Context(), given)
		return err
	}
	return c
}

// dataOf returns where a server with this configuration has its data.
func dataOf(c *server.Config) backup.Server {
	return backup.Server{Data: c.Data, Database: c.Database, Storage: c.RegistryStorage, EncryptionConfig: c.EncryptionConfig}
}

// withTarget runs a command on the directory or bucket of its argument.
func withTarget(create bool, run func(*cobra.Command, *backup.Target) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		target, err := backup.OpenTarget(cmd.Context(), args[0], create)
		if identity := cmd.Flag("identity"); err == nil && identity != nil && identity.Changed {
			err = target.Unlock(identity.Value.String())
		}
		if err != nil {
			return err
		}
		return run(cmd, target)
	}
}

func newBackupCreate() *cobra.Command {
	var c *server.Config
	o := backup.CreateOptions{Version: version()}
	var format output
	var keep int
	cmd := &cobra.Command{
		Use:   "create DIR|s3://BUCKET/PREFIX",
		Short: "Copy database, blobs and keys to a directory or bucket, while the server works",
		Long: `Copy the database, the blobs that it names, and the server's keys to a directory or a
bucket, while the server works. The copy is one state of the database: every write that
was acknowledged before the command started is in it. Blobs that are in the target
already are not copied again. While it runs, the registry removes no bytes.

Give it the server's --config, or the same --data, --database and --registry-storage, and use the server's version of this program. Run it on a machine that has the
data directory. The backup contains the keys of the server and of its Secrets: keep it
where only administrators can read it.

An interrupted backup is not listed. The next one removes what it left. If another backup in
the target is damaged, a warning says so, and the exit code is 0: the new backup is whole.`,
		Example: `  exeunt backup create /srv/backup --data /var/lib/exeunt
  exeunt backup create s3://backups/exeunt --config /etc/exeunt/exeunt.yaml --keep 14`,
		Args: exactly(1, "the directory or bucket"),
		RunE: withTarget(true, func(cmd *cobra.Command, target *backup.Target) error {
			if !cmd.Flags().Changed("recipient") {
				o.Recipients = c.BackupRecipients
			}
			p := newStepLine(cmd)
			o.Progress = showBackup(p)
			made, err := backup.Create(cmd.Context(), dataOf(c), target, o)
			p.clear()
			if err != nil {
				return err
			}
			pruned, err := prune(cmd, target, keep)
			if errors.Is(err, backup.ErrDamaged) {
				made.Warning, err = err.Error(), nil
			}
			if made.Warning != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: this backup is whole, but another one is not, so nothing was removed from the target: %s; exeunt backup verify lists what is damaged\n", made.Warning)
			}
			return errors.Join(err, format.print(cmd.OutOrStdout(), document{
				value: madeBackup{made, pruned},
				text: func(p *printer) {
					writeMade(p, made)
					pruned.write(p)
				},
			}))
		}),
	}
	c = addPlaces(cmd, true)
	f := cmd.Flags()
	f.String("encryption-provider-config", "", "`FILE` with the keys of Secrets (default encryption.yaml in the data directory)")
	f.StringVar(&o.Staging, "staging", "", "`directory` for the copy of an SQLite database until it is in the target (default: the target, or the system's for temporary files)")
	f.StringSliceVar(&o.Recipients, "recipient", nil, "encrypt the backup for this `age1…`; may be repeated (default: the server's backup-recipients, or do not encrypt)")
	f.IntVar(&keep, "keep", 0, "then remove all but the newest `N` backups (default: remove none)")
	format.addFlag(cmd)
	return cmd
}

// madeBackup is the result for scripts.
type madeBackup struct {
	backup.Result
	prunedBackups
}

func writeMade(p *printer, made backup.Result) {
	p.line("backup %s: %s, %s; copied %s, %s", made.ID, counted(made.Blobs, "blob"), humanBytes(made.Size()),
		counted(made.Copied, "blob"), humanBytes(made.CopiedBytes))
	if made.Removed > 0 {
		p.line("removed %s that no backup needs", humanBytes(made.Removed))
	}
}

func newBackupList() *cobra.Command {
	var format output
	cmd := &cobra.Command{
		Use:     "list DIR|s3://BUCKET/PREFIX",
		Short:   "List the whole backups in a directory or bucket",
		Long:    "List the backups in a directory or bucket, oldest first. Interrupted backups are not listed.",
		Example: "  exeunt backup list /srv/backup",
		Args:    exactly(1, "the directory or bucket"),
		RunE: withTarget(false, func(cmd *cobra.Command, target *backup.Target) error {
			list, err := target.List(cmd.Context())
			if err != nil {
				return err
			}
			return format.print(cmd.OutOrStdout(), listed("v1", "List", list, "no backups", "ID\tCREATED\tENGINE\tBLOBS\tSIZE\tVERSION", func(m backup.Manifest) (string, []any) {
				return m.ID, []any{m.ID, m.Created.Format(time.DateTime), m.Engine, m.Blobs, humanBytes(m.Size()), m.Version}
			}))
		}),
	}
	format.addFlag(cmd, "name")
	return cmd
}

func newBackupVerify() *cobra.Command {
	var id string
	var quick bool
	var format output
	cmd := &cobra.Command{
		Use:   "verify DIR|s3://BUCKET/PREFIX",
		Short: "Check that backups have all their bytes, and that they match their checksums",
		Long: `Read all files and blobs of the backups in a directory or bucket, and compare them with
their checksums. Each line of the output names bytes that are missing or damaged.`,
		Example: "  exeunt backup verify /srv/backup\n  exeunt backup verify /srv/backup --backup 20261117T020000Z-k3xqa7mf",
		Args:    exactly(1, "the directory or bucket"),
		RunE: withTarget(false, func(cmd *cobra.Command, target *backup.Target) error {
			list, err := target.List(cmd.Context())
			if err == nil && id != "" {
				var one backup.Manifest
				one, err = target.Find(cmd.Context(), id)
				list = []backup.Manifest{one}
			}
			if err != nil {
				return err
			}
			return verifyBackups(cmd, target, list, quick, format)
		}),
	}
	cmd.Flags().StringVar(&id, "backup", "", "the `ID` of one backup (default: all)")
	addIdentity(cmd, new(string))
	cmd.Flags().BoolVar(&quick, "quick", false, "compare sizes, and do not read the bytes")
	format.addFlag(cmd)
	return cmd
}

// verifiedBackup is the result for scripts.
type verifiedBackup struct {
	ID       string   `json:"id"`
	Blobs    int      `json:"blobs"`
	Bytes    int64    `json:"bytes"`
	Findings []string `json:"findings"`
}

func verifyBackups(cmd *cobra.Command, target *backup.Target, list []backup.Manifest, quick bool, format output) error {
	if len(list) == 0 {
		return errors.New("there are no backups")
	}
	p := newStepLine(cmd)
	damaged, results := 0, []verifiedBackup{}
	for _, m := range list {
		result := verifiedBackup{m.ID, m.Blobs, m.Size(), []string{}}
		err := target.Verify(cmd.Context(), m, quick, func(err error) { result.Findings = append(result.Findings, err.Error()) }, showBackup(p))
		p.clear()
		if err != nil {
			return err
		}
		if len(result.Findings) > 0 {
			damaged++
		}
		results = append(results, result)
	}
	err := format.print(cmd.OutOrStdout(), document{value: results, text: func(p *printer) { writeVerified(p, results) }})
	if damaged > 0 {
		err = errors.Join(err, fmt.Errorf("%s of %d: %w", counted(damaged, "backup"), len(list), backup.ErrDamaged))
	}
	return err
}

func writeVerified(p *printer, results []verifiedBackup) {
	for _, r := range results {
		for _, finding := range r.Findings {
			p.line("%s: %s", r.ID, finding)
		}
		if len(r.Findings) == 0 {
			p.line("%s: whole, %s, %s", r.ID, counted(r.Blobs, "blob"), humanBytes(r.Bytes))
		}
	}
}

func newBackupPrune() *cobra.Command {
	var format output
	var keep int
	cmd := &cobra.Command{
		Use:     "prune DIR|s3://BUCKET/PREFIX --keep N",
		Short:   "Remove all but the newest backups, and the bytes that only they had",
		Long:    "Remove all but the newest N backups, and the bytes that only they had.",
		Example: "  exeunt backup prune /srv/backup --keep 14",
		Args:    exactly(1, "the directory or bucket"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keep < 1 {
				return codedError{errors.New("--keep N: say how many backups stay, at least 1"), exitUsage}
			}
			return withTarget(false, func(cmd *cobra.Command, target *backup.Target) error {
				pruned, err := prune(cmd, target, keep)
				return errors.Join(err, format.print(cmd.OutOrStdout(), document{value: pruned, text: pruned.write}))
			})(cmd, args)
		},
	}
	cmd.Flags().IntVar(&keep, "keep", 0, "how many backups stay: the newest `N`")
	format.addFlag(cmd)
	return cmd
}

// prunedBackups is the result for scripts.
type prunedBackups struct {
	Pruned []string `json:"pruned"`
}

// prune removes all but the newest backups; it keeps all if keep is 0.
func prune(cmd *cobra.Command, target *backup.Target, keep int) (prunedBackups, error) {
	p := prunedBackups{[]string{}}
	if keep == 0 {
		return p, nil
	}
	removed, err := target.Prune(cmd.Context(), keep)
	for _, m := range removed {
		p.Pruned = append(p.Pruned, m.ID)
	}
	return p, err
}

func (r prunedBackups) write(p *printer) {
	for _, id := range r.Pruned {
		p.line("removed backup %s", id)
	}
}

// showBackup shows the progress of a backup on a line.
func showBackup(line *stepLine) func(backup.Progress) {
	return func(p backup.Progress) { line.show(server.DescribeBackup(p)) }
}

func newBackupRestore() *cobra.Command {
	var c *server.Config
	var id string
	var format output
	cmd := &cobra.Command{
		Use:   "restore DIR|s3://BUCKET/PREFIX --data DIR",
		Short: "Make the data of a new server from a backup",
		Long: `Make the data directory, the database and the blob storage of a new server from a
backup. All of them must be new or empty. Then start the server with the same --data,
--database and --registry-storage.

Resource versions jump far ahead, so that none is issued a second time: clients that know
an older one get 410 (Expired) from watches and lists, and list again.

After an interruption, run the same command again; until then no server starts on the
directory. Objects of a running server return with "exeunt restore --from", by its rules.`,
		Example: `  exeunt backup restore /srv/backup --data /var/lib/exeunt
  exeunt backup restore s3://backups/exeunt --data ./data --database postgres://exeunt@db.example/new --registry-storage s3://new-blobs`,
		Args: exactly(1, "the directory or bucket that has the backup"),
		RunE: withTarget(false, func(cmd *cobra.Command, target *backup.Target) error {
			m, err := target.Find(cmd.Context(), id)
			if err != nil {
				return err
			}
			p := newStepLine(cmd)
			to := dataOf(c)
			to.EncryptionConfig = "" // the copy of the key is restored to the data directory
			revision, err := backup.Restore(cmd.Context(), target, m, to, showBackup(p))
			p.clear()
			if err != nil {
				return err
			}
			done := restoredBackup{m.ID, revision, m.Blobs, m.Size()}
			return format.print(cmd.OutOrStdout(), document{value: done, text: func(p *printer) {
				p.line("restored backup %s: %s, %s", done.ID, counted(done.Blobs, "blob"), humanBytes(done.Bytes))
				p.line("resource versions continue after %d; clients with older ones get 410 and list again", done.Revision)
				if c.EncryptionConfig != "" {
					p.line("the backup's key of Secrets is %s; the server will use %s", filepath.Join(c.Data, encryptionFile), c.EncryptionConfig)
				}
			}})
		}),
	}
	c = addPlaces(cmd, true)
	addIdentity(cmd, new(string))
	cmd.Flags().Lookup("data").Usage = "the new server's data directory"
	cmd.Flags().StringVar(&id, "backup", "", "the `ID` of the backup (default: the newest)")
	format.addFlag(cmd)
	return cmd
}

// restoredBackup is the result for scripts.
type restoredBackup struct {
	ID       string `json:"id"`
	Revision int64  `json:"revision"` // the next write gets a higher one
	Blobs    int    `json:"blobs"`
	Bytes    int64  `json:"bytes"`
}
