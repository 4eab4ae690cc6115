package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func setting(name, value, source string) Setting {
	return Setting{Name: name, Value: strings.ReplaceAll(value, "secret", "xxxxx"), Raw: value, Source: source}
}

// TestMergeSettings: a reload applies what it can, marks what waits for a restart, also
// when only a password changed, and forgets a change that was taken back.
func TestMergeSettings(t *testing.T) {
	old := []Setting{setting("log-level", "INFO", "default"), setting("listen", "a:1", "f:1"), setting("database", "postgres://u:secret@db", "f:2"), setting("data", "d", "f:3")}
	next := []Setting{setting("log-level", "DEBUG", "f:1"), setting("listen", "b:1", "f:2"), setting("database", "postgres://u:secretsecret@db", "f:3"), setting("data", "d", "f:4")}
	settings, applied, waiting := merge(old, next)
	listen, database := old[1], old[2]
	listen.Pending, database.Pending = &next[1].Value, &next[2].Value
	if diff := cmp.Diff([]Setting{next[0], listen, database, next[3]}, settings); diff != "" {
		t.Error(diff)
	}
	if len(applied) != 1 || applied[0].Name != "log-level" || len(waiting) != 2 {
		t.Errorf("applied %v, waiting %v", applied, waiting)
	}
	settings, applied, waiting = merge(settings, old)
	if diff := cmp.Diff(old, settings); diff != "" || len(applied) != 1 || len(waiting) != 0 {
		t.Errorf("after the way back: applied %v, waiting %v\n%s", applied, waiting, diff)
	}
}

// TestReloadRaces: signals during a reload cause one more, which sees the newest file; an
// error changes nothing; and a reload that a shutdown meets is completed before run ends.
func TestReloadRaces(t *testing.T) {
	signals, reading, goOn := make(chan os.Signal, 1), make(chan int), make(chan error)
	var mu sync.Mutex
	var applied []int64
	reads := 0
	r := &reloader{signals: signals, log: slog.New(slog.DiscardHandler),
		read: func() (Config, error) {
			reads++
			reading <- reads
			return Config{MaxCascade: int64(reads)}, <-goOn
		},
		apply: func(c Config) {
			mu.Lock()
			defer mu.Unlock()
			applied = append(applied, c.MaxCascade)
		},
	}
	r.settings.Store(&[]Setting{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	send := func() { // as signal.Notify sends
		select {
		case signals <- syscall.SIGHUP:
		default:
		}
	}
	send()
	<-reading
	send()
	send() // while the first is being read: both become one
	goOn <- nil
	<-reading
	goOn <- errors.New("exeunt.yaml:3: unknown key")
	send()
	<-reading
	cancel() // the shutdown begins while the file is being read
	goOn <- nil
	if err := <-ended; err != nil {
		t.Error(err)
	}
	send() // a signal after the end is never read
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]int64{1, 3}, applied); diff != "" || reads != 3 {
		t.Errorf("%d reads\n%s", reads, diff)
	}
}
