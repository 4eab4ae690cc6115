package packaging_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestComposePassword: the database URL of the compose file takes the password from the
// file that its first lines say how to make.
func TestComposePassword(t *testing.T) {
	found := regexp.MustCompile(`EXEUNT_DATABASE: (\S+)`).FindStringSubmatch(string(read(t, "compose/compose.yaml")))
	if found == nil {
		t.Fatal("the compose file has no database")
	}
	file := filepath.Join(t.TempDir(), "pgpass")
	if err := os.WriteFile(file, []byte("postgres:5432:exeunt:exeunt:s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(strings.Replace(found[1], "/run/secrets/pgpass", file, 1))
	if err != nil || config.Password != "s3cret" || config.Host != "postgres" || config.User != "exeunt" || config.Database != "exeunt" {
		t.Errorf("host %q, user %q, database %q, password %q: %v", config.Host, config.User, config.Database, config.Password, err)
	}
}
