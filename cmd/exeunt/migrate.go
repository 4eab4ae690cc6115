package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/internal/durable"
	"github.com/exeunt/exeunt/server"
	"github.com/exeunt/exeunt/sqldb"
)

func newMigrate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Show or change the step of a database's schema, or change the engine",
		Long: `Show or change the step of a database's schema. A server migrates its database up when it
starts, so "up" is for those who want to do it before. "down" is the way back to an older
version of this program: stop all replicas, run it with the newer version, and start the
older one. "database" moves everything from SQLite to PostgreSQL, or back.`,
	}
	cmd.AddCommand(newMigrateStatus(), newMigrateUp(), newMigrateDown(), newMigrateDatabase())
	return cmd
}

// migration is a command that works on a database.
type migration struct {
	place  *server.Config
	format output
}

func (m *migration) addFlags(cmd *cobra.Command) {
	m.place = addPlaces(cmd, false)
	m.format.addFlag(cmd)
}

// run opens the database as it is, calls change, which may be nil, and prints the steps.
// alone keeps servers from the data directory meanwhile.
func (m *migration) run(cmd *cobra.Command, alone bool, change func(ctx context.Context, db *sqldb.DB) error) (err error) {
	database, err := m.find()
	if err != nil {
		return err
	}
	if !strings.Contains(database, "://") {
		if alone {
			unlock, err := server.LockData(m.place.Data)
			if err != nil {
				return err
			}
			defer unlock()
		}
	}
	db, err := sqldb.OpenAsIs(cmd.Context(), database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if change != nil {
		if err := change(cmd.Context(), db); err != nil {
			return err
		}
	}
	steps, err := db.Steps(cmd.Context())
	if err != nil {
		return err
	}
	return m.format.print(cmd.OutOrStdout(), document{value: steps, text: func(p *printer) { writeSteps(p, steps) }})
}

// find returns the database, which must exist.
func (m *migration) find() (database string, err error) {
	database = dataOf(m.place).WithDefaults().Database
	if !strings.Contains(database, "://") {
		if _, err := os.Stat(database); err != nil {
			return "", fmt.Errorf("--database: %w: say where the server has it, or --data", err)
		}
	}
	return database, nil
}

func writeSteps(p *printer, steps []sqldb.Step) {
	for _, s := range steps {
		state, back := "done", "no way back"
		if !s.Done {
			state = "pending"
		}
		if s.Back {
			back = "way back"
		}
		if s.Loses != "" {
			back += ", loses " + s.Loses
		}
		p.line("%04d %-16s %-8s %s", s.Number, s.Name, state, back)
	}
}

func newMigrateStatus() *cobra.Command {
	var m migration
	cmd := &cobra.Command{
		Use: "status", Short: "List the steps of the schema, and which of them the database has",
		Long:    "List the steps of the schema, and which of them the database has. It changes nothing, and can run beside a server.",
		Example: "  exeunt migrate status --data /var/lib/exeunt",
		Args:    exactly(0, "only flags"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return m.run(cmd, false, nil) },
	}
	m.addFlags(cmd)
	return cmd
}

func newMigrateUp() *cobra.Command {
	var m migration
	var to int
	cmd := &cobra.Command{
		Use: "up", Short: "Run the steps that the database does not have",
		Long: `Run the steps that the database does not have, each in one transaction. An SQLite file is
copied first, to FILE.step-N. With PostgreSQL, replicas of the previous version may run
meanwhile.`,
		Example: "  exeunt migrate up --data /var/lib/exeunt",
		Args:    exactly(0, "only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.run(cmd, true, func(ctx context.Context, db *sqldb.DB) error { return db.Up(ctx, to) })
		},
	}
	m.addFlags(cmd)
	cmd.Flags().IntVar(&to, "to", 0, "the last step to run, a `NUMBER` (default: all)")
	return cmd
}

func newMigrateDown() *cobra.Command {
	var m migration
	var to int
	var lose bool
	cmd := &cobra.Command{
		Use: "down --to N", Short: "Go back to an older step of the schema",
		Long: `Go back to an older step of the schema, for an older version of this program. Stop all
replicas first. Each step is one transaction. An SQLite file is copied first, to
FILE.step-N. A step that would lose data is refused, and says what it loses, unless
--lose-data is given. Steps of the first release have no way back.`,
		Example: "  exeunt migrate down --to 9 --data /var/lib/exeunt",
		Args:    exactly(0, "only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to < 1 {
				return errors.New("--to N: say which step stays the last; exeunt migrate status lists them")
			}
			return m.run(cmd, true, func(ctx context.Context, db *sqldb.DB) error { return db.Down(ctx, to, lose) })
		},
	}
	m.addFlags(cmd)
	cmd.Flags().IntVar(&to, "to", 0, "the step to go back to, a `NUMBER`")
	cmd.Flags().BoolVar(&lose, "lose-data", false, "run steps that lose data")
	return cmd
}

func newMigrateDatabase() *cobra.Command {
	var m migration
	var to string
	cmd := &cobra.Command{
		Use: "database --to postgres://…|FILE", Short: "Copy everything from SQLite to PostgreSQL, or back",
		Long: `Copy everything from SQLite to an empty PostgreSQL database, or from PostgreSQL to a new
SQLite file. Stop all replicas first. Objects keep their uids and resource versions, so
clients continue their watches. At the end every row of both databases is compared.

The source is only read. After an interruption run the same command again: it continues.
Until it has ended, no server starts on the copy. Then start the server with the new
--database, and with the same --data and --registry-storage as before; never start one on
the old database again, because clients would see the past.

A password belongs into EXEUNT_TO, PGPASSWORD or PGPASSFILE: others can read arguments.`,
		Example: `  exeunt migrate database --data /var/lib/exeunt --to postgres://exeunt@db.example/exeunt
  exeunt migrate database --database postgres://exeunt@db.example/exeunt --data /var/lib/exeunt --to /var/lib/exeunt/exeunt.db`,
		Args: exactly(0, "only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to = cmp.Or(to, os.Getenv("EXEUNT_TO")); to == "" {
				return errors.New("--to: say where the copy goes: postgres://USER@HOST/DATABASE, or the path of a new SQLite file")
			}
			return m.moveTo(cmd, to)
		},
	}
	m.addFlags(cmd)
	cmd.Flags().StringVar(&to, "to", "", "an empty PostgreSQL database, or the path of a new SQLite file (default: EXEUNT_TO in the environment)")
	return cmd
}

// moveTo copies the database to one of the other engine.
func (m *migration) moveTo(cmd *cobra.Command, to string) error {
	from, err := m.find()
	if err != nil {
		return err
	}
	unlock, err := server.LockData(m.place.Data) // the server's lock of SQLite's file, wherever that is
	if err != nil {
		return err
	}
	defer unlock()
	line := newStepLine(cmd)
	moved, err := sqldb.Move(cmd.Context(), from, to, func(p sqldb.MoveProgress) {
		line.show(fmt.Sprintf("%s %s: %d of %s", p.Step, p.Table, p.Done, counted(p.Total, "row")))
	})
	line.clear()
	if err != nil {
		return err
	}
	if !strings.Contains(to, "://") {
		if err := keepOwner(to); err != nil {
			return err
		}
	}
	return m.format.print(cmd.OutOrStdout(), document{value: moved, text: func(p *printer) {
		p.line("copied and compared %s, %s", counted(moved.Tables, "table"), counted(moved.Rows, "row"))
		p.line("start every server with the new --database, and none with the old one")
	}})
}

// keepOwner gives a file to the owner of its directory.
func keepOwner(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(durable.KeepOwner(f), f.Close())
}
