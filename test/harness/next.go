package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// nextSteps are the migrations of the next version on PostgreSQL, and their ways back. Each is
// what CONTRIBUTING.md allows a step: it adds, to one table that the previous version
// reads and writes.
var nextSteps = map[string][2]string{
	"next_objects": {`
ALTER TABLE objects ADD COLUMN next_version text NOT NULL DEFAULT 'default';
CREATE TABLE next_version (uid text PRIMARY KEY);
CREATE FUNCTION next_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO next_version VALUES (NEW.uid) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER next_version AFTER INSERT ON objects FOR EACH ROW EXECUTE FUNCTION next_version();
`, `
DROP TRIGGER next_version ON objects;
DROP FUNCTION next_version;
DROP TABLE next_version;
ALTER TABLE objects DROP COLUMN next_version;
`},
	"next_reviews": {
		`ALTER TABLE gc_object_reviews ADD COLUMN next_version text;`,
		`ALTER TABLE gc_object_reviews DROP COLUMN next_version;`,
	},
	"next_changes": {
		`ALTER TABLE changes ADD COLUMN next_version text;`,
		`ALTER TABLE changes DROP COLUMN next_version;`,
	},
}

// nextPath builds the next version once per test binary: this program with nextSteps after
// the steps that it has.
var nextPath = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "next-version-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	steps, err := filepath.Glob(filepath.Join(root(), "sqldb", "schema", "postgres", "????_*[a-z].sql"))
	if err != nil {
		return "", err
	}
	number := 0
	for _, step := range steps {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(step), "%04d", &n); err == nil {
			number = max(number, n)
		}
	}
	overlay := map[string]string{}
	for _, name := range []string{"next_objects", "next_reviews", "next_changes"} {
		number++
		for i, suffix := range []string{".sql", ".down.sql"} {
			for _, engine := range []string{"postgres", "sqlite"} {
				text := nextSteps[name][i]
				if engine == "sqlite" {
					text = "SELECT 1;" // the engines have the same steps
				}
				file := fmt.Sprintf("%04d_%s%s", number, name, suffix)
				source := filepath.Join(dir, engine+"-"+file)
				if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
					return "", err
				}
				overlay[filepath.Join(root(), "sqldb", "schema", engine, file)] = source
			}
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return "", err
	}
	return build(root(), filepath.Join(root(), "test", "bin", "exeunt-next"), "./cmd/exeunt", "-s -w", "-overlay", file)
})

// BuildNext builds the next version, so that a test can do it before its clock runs.
func BuildNext(t testing.TB) {
	t.Helper()
	if _, err := nextPath(); err != nil {
		t.Fatal(err)
	}
}

// NextReplica is Replica with the next version of the program: it knows three more
// migrations, and runs them while this server works.
func (s *Server) NextReplica(t testing.TB) *Server {
	t.Helper()
	r := s.prepareReplica(t, s.Database, s.replicaFlags())
	r.program = nextPath
	r.Start()
	return r
}
