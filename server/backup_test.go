package server

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/backup"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestBackupSchedule: a server makes a backup if there is none, and again when the last one is older than configured, and
// keeps as many as configured. Its status says when the next one is due; without the setting it is due a day after the
// server's first start, and an hour.
func TestBackupSchedule(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			config := Config{Data: filepath.Join(t.TempDir(), "data"), Database: dbtest.Open(t, engine)}
			began := time.Now().Truncate(time.Second)
			s := start(t, config)
			status := s.status(t)
			if status.LastBackup != nil || status.BackupDue == nil || status.BackupDue.Before(began.Add(25*time.Hour)) || status.BackupDue.After(time.Now().Add(25*time.Hour)) {
				t.Errorf("a new server: last %v, due %v", status.LastBackup, status.BackupDue)
			}
			s.stop()

			config.BackupTo, config.BackupEvery, config.BackupKeep = filepath.Join(t.TempDir(), "backups"), 6*time.Hour, 2
			var ids []string
			for range 3 {
				s := start(t, config)
				dbtest.Await(t, "a new backup", func() bool {
					target, err := backup.OpenTarget(t.Context(), config.BackupTo, false)
					if err != nil {
						return false // not made yet
					}
					list, err := target.List(t.Context())
					if err != nil || len(list) == 0 || strings.Contains(strings.Join(ids, " "), list[len(list)-1].ID) {
						return false
					}
					if status := s.status(t); status.LastBackup == nil || status.BackupDue == nil || !status.BackupDue.Equal(status.LastBackup.Add(7*time.Hour)) || time.Since(*status.LastBackup) > time.Hour {
						return false // its end is recorded after the manifest
					}
					if len(list) > 2 {
						return false // the oldest leaves after that
					}
					if err := target.Verify(t.Context(), list[len(list)-1], false, func(err error) { t.Error(err) }, nil); err != nil {
						t.Error(err)
					}
					ids = append(ids, list[len(list)-1].ID)
					return true
				})
				s.stop()
				db := dbtest.NewSQL(t, dbtest.Connect(t, config.Database))
				if n := db.Count(`SELECT count(*) FROM backups WHERE hold_until > ended_at + 1000`); n != 0 {
					t.Errorf("%d holds are left", n)
				}
				db.Exec(`UPDATE backups SET ended_at = ended_at - $1`, (6 * time.Hour).Milliseconds())
			}
		})
	}
}

// TestBackupDelay: a second replica, and a restart, make no backup while the last one is young.
func TestBackupDelay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{"too often": {BackupTo: "x", BackupEvery: time.Second}, "negative": {BackupTo: "x", BackupEvery: -time.Hour}} {
		if err := Check(c); err == nil || !strings.Contains(err.Error(), "--backup-every") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Check(Config{BackupTo: "x"}); err != nil {
		t.Error(err)
	}
	config := Config{Data: filepath.Join(t.TempDir(), "data"), BackupTo: filepath.Join(t.TempDir(), "backups"), BackupEvery: time.Hour}
	first := start(t, config)
	dbtest.Await(t, "a backup", func() bool { return first.status(t).LastBackup != nil })
	at := *first.status(t).LastBackup
	first.stop()
	again := start(t, config)
	if status := again.status(t); !status.LastBackup.Equal(at) {
		t.Errorf("the last backup is from %v, and was from %v", status.LastBackup, at)
	}
	again.stop()
	target, err := backup.OpenTarget(t.Context(), config.BackupTo, false)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := target.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%d backups, %v", len(list), err)
	}
}

func (r *running) status(t *testing.T) (all Status) {
	t.Helper()
	raw, err := r.client.RESTClient().Get().AbsPath(StatusPath).DoRaw(t.Context())
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}
