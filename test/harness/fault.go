package harness

import (
	"database/sql"
	"fmt"
)

// Faults are injected into the database, where the server cannot tell them from real ones.
// The product has no switch for them.

// Fault is a write that fails or hangs in the database.
type Fault struct {
	Table string
	// When selects the rows: a condition on NEW and OLD that both engines know.
	When string
	// Event is INSERT, UPDATE or DELETE.
	Event string
	// Hang: the statement does not return, with its transaction open, until the server is
	// killed. Otherwise it fails with Message.
	Hang    bool
	Message string
}

// Break makes a write fail or hang from now on, and returns a function that repairs it.
// The server may be running or stopped.
func (s *Server) Break(f Fault) (mend func()) {
	s.t.Helper()
	db := s.open()
	defer db.Close()
	for _, statement := range f.statements(s.Engine) {
		if _, err := db.Exec(statement); err != nil {
			s.t.Fatalf("break %s: %v", f.Table, err)
		}
	}
	return func() {
		s.t.Helper()
		db := s.open()
		defer db.Close()
		statement := "DROP TRIGGER test_fault"
		if s.Engine == Postgres {
			statement += " ON " + f.Table
		}
		if _, err := db.Exec(statement); err != nil {
			s.t.Fatalf("repair %s: %v", f.Table, err)
		}
	}
}

func (f Fault) statements(engine string) []string {
	if engine == SQLite {
		act := fmt.Sprintf("RAISE(ABORT, '%s')", f.Message)
		if f.Hang { // an endless count
			act = "count(*) FROM (WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c)"
		}
		return []string{fmt.Sprintf("CREATE TRIGGER test_fault BEFORE %s ON %s WHEN %s BEGIN SELECT %s; END", f.Event, f.Table, f.When, act)}
	}
	act := fmt.Sprintf("RAISE EXCEPTION '%s'", f.Message)
	if f.Hang {
		act = "PERFORM pg_sleep(3600)"
	}
	return []string{
		"CREATE OR REPLACE FUNCTION test_fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " + act + "; RETURN NEW; END $$",
		fmt.Sprintf("CREATE TRIGGER test_fault BEFORE %s ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION test_fault()", f.Event, f.Table, f.When),
	}
}

// AwaitHang returns when a write hangs. After the kill, Unhang ends the statement that is
// left in the database.
func (s *Server) AwaitHang() {
	s.t.Helper()
	db := s.open()
	defer db.Close()
	busy := 0
	Within(s.t, 2*Patience, "the write that hangs", func() error {
		if s.Engine == Postgres {
			var n int
			if err := db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'").Scan(&n); err != nil {
				return err
			}
			if n == 0 {
				return fmt.Errorf("no statement hangs")
			}
			return nil
		}
		// A database that stays locked has a hanging writer: all other writes take
		// milliseconds.
		if _, err := db.Exec("PRAGMA busy_timeout = 0; BEGIN IMMEDIATE; ROLLBACK"); err == nil {
			busy = 0
			return fmt.Errorf("the database is not locked")
		}
		if busy++; busy < 8 {
			return fmt.Errorf("the database was locked %d times in a row; want 8", busy)
		}
		return nil
	})
}

// Unhang ends the statements that a killed server left hanging in PostgreSQL. In SQLite
// they ended with the process.
func (s *Server) Unhang() {
	s.t.Helper()
	if s.Engine != Postgres {
		return
	}
	db := s.open()
	defer db.Close()
	if _, err := db.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"); err != nil {
		s.t.Fatalf("end hanging statements: %v", err)
	}
}

// Execute changes the server's database directly, beside the server.
func (s *Server) Execute(statement string) {
	s.t.Helper()
	db := s.open()
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// Query reads one text column from the server's database.
func (s *Server) Query(statement string, args ...any) (out []string) {
	s.t.Helper()
	db := s.open()
	defer db.Close()
	rows, err := db.Query(statement, args...)
	if err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			s.t.Fatal(err)
		}
		out = append(out, text)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// open opens the server's database on a connection of its own.
func (s *Server) open() *sql.DB {
	s.t.Helper()
	driver, name := "pgx", s.Database
	if s.Engine == SQLite {
		driver, name = "sqlite", s.Database+"?_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		s.t.Fatalf("open the database: %v", err)
	}
	db.SetMaxOpenConns(1) // settings of a connection apply to the next statement
	return db
}
