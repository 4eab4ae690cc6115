package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestLostKeyFile: a database with registered keys is refused without the key file,
// and no second key is made, until the operator gives up exactly the lost key.
func TestLostKeyFile(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		c := Config{Data: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
		file := filepath.Join(c.Data, "encryption.yaml")
		keys, created, err := openKeys(t.Context(), c, db)
		if err != nil || !created {
			t.Fatalf("first start: created %v, %v", created, err)
		}
		lost := keys.Names()[0]
		if _, err := openStore(t.Context(), c, db); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", "other"} {
			c.GiveUpKey = name
			if _, err := openStore(t.Context(), c, db); err == nil || !strings.Contains(err.Error(), "is missing, and this database is sealed with key \""+lost+"\"") {
				t.Errorf("giving up %q: %v; want the name of the lost key", name, err)
			}
			if _, err := os.Stat(file); err == nil {
				t.Errorf("giving up %q: a second key was made", name)
			}
		}
		c.GiveUpKey = lost
		for range 2 { // the flag may stay
			if _, err := openStore(t.Context(), c, db); err != nil {
				t.Errorf("giving up the lost key: %v", err)
			}
		}
	})
}
