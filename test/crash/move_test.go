package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/test/harness"
)

// TestMoveDatabase: a server with objects, sealed Secrets, users, an archive and images moves from SQLite to PostgreSQL and
// back, by commands that are killed at random moments and run again. Nothing differs in the database, and a client that
// watched goes on with its old resource version on each engine: it gets the later events and no others.
func TestMoveDatabase(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	p := &pusher{
		t: t, url: fmt.Sprintf("http://%s/v2/kept/app", s.Registry()), rng: rand.New(rand.NewPCG(1, 3)),
		http: s.RegistryHTTP(), api: s.HTTP(), namespace: "kept", tags: map[string]tag{},
	}
	for i := range 5 {
		manifest, err := p.push(fmt.Sprint("t", i))
		if err != nil {
			t.Fatal(err)
		}
		p.tags[fmt.Sprint("t", i)] = tag{manifest: manifest}
	}
	if r := s.Exeunt(t, "user", "add", "ann"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	api := client(t, s).CoreV1()
	for i := range 30 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s-", i)}, StringData: map[string]string{"key": fmt.Sprint("hidden-", i)}}
		if _, err := api.Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	remove(t, s, owner(t, s, "gone")) // with what it owns: a cascade in the archive
	gone(t, s, "gone-owned")
	since := newest(t, s.HTTP())
	owner(t, s, "later")
	remove(t, s, "later-owned")
	events := follow(t, s, since, 3)
	s.Stop()

	want := dump(s)
	first := s.Database
	second, third := harness.Database(t, harness.Postgres), harness.Database(t, harness.SQLite)
	moveKilled(t, s, second)
	s.Moved(harness.Postgres, second)
	moveKilled(t, s, third)
	s.Moved(harness.SQLite, third)
	if got := dump(s); !slices.Equal(got, want) {
		t.Fatalf("the copy of the copy has %d lines, the first database %d: the first difference is %s", len(got), len(want), difference(got, want))
	}

	for round, to := range []string{harness.Postgres, harness.SQLite} {
		if round == 0 {
			s.Moved(harness.Postgres, second)
		} else {
			database := harness.Database(t, to)
			s.Stop()
			moveKilled(t, s, database)
			s.Moved(to, database)
		}
		s.Start()
		owner(t, s, fmt.Sprint("new-", round))
		now := follow(t, s, since, len(events)+2)
		if !slices.Equal(now[:len(events)], events) || !strings.HasPrefix(now[len(events)], fmt.Sprintf("ADDED new-%d ", round)) {
			t.Errorf("%s: a watch from %s has %q, and had %q", to, since, now, events)
		}
		events = now
		secret, err := client(t, s).CoreV1().Secrets("default").Get(t.Context(), "s-7", metav1.GetOptions{})
		if err != nil || string(secret.Data["key"]) != "hidden-7" {
			t.Errorf("%s: the Secret: %v %v", to, secret, err)
		}
		p.url, p.http, p.api = fmt.Sprintf("http://%s/v2/kept/app", s.Registry()), s.RegistryHTTP(), s.HTTP()
		if whole := p.compare(); whole != len(p.tags) {
			t.Errorf("%s: %d of %d images are whole", to, whole, len(p.tags))
		}
		if manifest, err := p.push(fmt.Sprint("new-", round)); err != nil {
			t.Error(err)
		} else {
			p.tags[fmt.Sprint("new-", round)] = tag{manifest: manifest}
		}
		s.VerifyRegistry(t)
	}
	if r := s.Exeunt(t, "restore", "configmap/gone", "-n", "default"); r.Code != 0 {
		t.Errorf("restore what was deleted before: %s%s", r.Stdout, r.Stderr)
	}
	if first == s.Database {
		t.Error("the server has its first database")
	}
}

// follow lists the first n events of the ConfigMaps in default since a resource version.
func follow(t *testing.T, s *harness.Server, since string, n int) (events []string) {
	t.Helper()
	stream := s.HTTP().Watch(t, "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion="+since)
	for range n {
		e := stream.Next(t)
		events = append(events, fmt.Sprintf("%s %s %s %s", e.Type, unquote(e.Field("metadata.name")), unquote(e.Field("metadata.resourceVersion")), unquote(e.Field("metadata.uid"))))
	}
	return events
}

// moveKilled kills the move of the stopped server's database at random moments, and then lets it end. What is not complete
// starts no server.
func moveKilled(t *testing.T, s *harness.Server, to string) {
	t.Helper()
	for killed := 0; ; {
		ctx, cancel := context.WithCancel(t.Context())
		move := s.MoveCommand(t, to)
		var said strings.Builder
		move.Stdout, move.Stderr = &said, &said
		if err := move.Start(); err != nil {
			t.Fatal(err)
		}
		if killed < 5 {
			go func() {
				select {
				case <-time.After(rand.N(time.Duration(killed+1) * 300 * time.Millisecond)):
					_ = move.Process.Kill() // it may have ended
				case <-ctx.Done():
				}
			}()
		}
		err := move.Wait()
		cancel()
		if err == nil {
			t.Logf("%s ended after %d kills: %s", to[:8], killed, said.String())
			return
		}
		if killed++; move.ProcessState.Exited() { // by itself
			t.Fatalf("exeunt migrate database: %v\n%s", err, said.String())
		}
	}
}

// dump lists the rows of a SQLite database.
func dump(s *harness.Server) (lines []string) {
	for _, table := range s.Query(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'sqlite_stat1' ORDER BY name`) {
		columns := s.Query(`SELECT 'quote("' || name || '")' FROM pragma_table_info($1)`, table)
		for _, row := range s.Query(`SELECT ` + strings.Join(columns, ` || ',' || `) + ` AS line FROM ` + table + ` ORDER BY line`) {
			lines = append(lines, table+" "+row)
		}
	}
	return lines
}

func difference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("%.300s\n%.300s", got[i], want[i])
		}
	}
	return "at the end"
}
