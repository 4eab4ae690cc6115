package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/backup"
	"github.com/exeunt/exeunt/server"
	"github.com/exeunt/exeunt/sqldb"
)

func newMigrate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Show or change the step of a database's schema",
		Long: `Show or change the step of a database's schema. A server migrates its database up when it
starts, so "up" is for those who want to do it before. "down" is the way back to an older
version of this program: stop all replicas, run it with the newer version, and start the
older one.`,
	}
	cmd.AddCommand(newMigrateStatus(), newMigrateUp(), newMigrateDown())
	return cmd
}

// migration is a command that works on a database.
type migration struct {
	place  backup.Server
	config string
	format output
}

func (m *migration) addFlags(cmd *cobra.Command) {
	addPlaces(cmd, &m.place.Data, &m.place.Database, nil)
	cmd.Flags().StringVar(&m.config, "config", "", "take these settings from the server's configuration `FILE` and its environment; flags win")
	m.format.addFlag(cmd)
}

// run opens the database as it is, calls change, which may be nil, and prints the steps.
// alone keeps servers from the data directory meanwhile.
func (m *migration) run(cmd *cobra.Command, alone bool, change func(ctx context.Context, db *sqldb.DB) error) (err error) {
	if m.config != "" {
		if err := readPlaces(cmd, m.config, &m.place); err != nil {
			return err
		}
	}
	database := m.place.WithDefaults().Database
	if !strings.Contains(database, "://") {
		if _, err := os.Stat(database); err != nil {
			return fmt.Errorf("--database: %w: say where the server has it, or --data", err)
		}
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
