package harness

import (
	"database/sql"
	"fmt"
)

// Faults are made where the server cannot tell them from real ones: in its
// database. There is no switch for them in the product.

// Fault is a write that the database does not do.
type Fault struct {
	Table string
	// When says of which rows: a condition on NEW and OLD that both engines know.
	When string
	// Event is INSERT, UPDATE or DELETE.
	Event string
	// Hang: the statement does not end, with its transaction open, until the
	// server is killed. Otherwise it fails, with Message.
	Hang    bool
	Message string
}

// Break makes a write fail or hang from now on, and returns what mends it.
// The server may be running; it need not.
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
			s.t.Fatalf("mend %s: %v", f.Table, err)
		}
	}
}

func (f Fault) statements(engine string) []string {
	if engine == SQLite {
		act := fmt.Sprintf("RAISE(ABORT, '%s')", f.Message)
		if f.Hang { // count, and never come to an end
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

// AwaitHang returns when a write hangs. What the killed server leaves behind in
// the database is ended by Unhang.
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
				return fmt.Errorf("nothing hangs")
			}
			return nil
		}
		// One who writes for long is the one: everybody else takes milliseconds.
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

// Unhang ends the statements that a killed server has left hanging. SQLite's
// ended with it.
func (s *Server) Unhang() {
	s.t.Helper()
	if s.Engine != Postgres {
		return
	}
	db := s.open()
	defer db.Close()
	if _, err := db.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"); err != nil {
		s.t.Fatalf("end what hangs: %v", err)
	}
}

// Execute changes the server's database beside the server.
func (s *Server) Execute(statement string) {
	s.t.Helper()
	db := s.open()
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// Query reads texts from the server's database, one column.
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

// open opens the server's database beside the server.
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
	db.SetMaxOpenConns(1) // what a connection is told counts for the next statement
	return db
}
