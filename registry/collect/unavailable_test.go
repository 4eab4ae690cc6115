package collect

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestDatabaseGoneAtStart: a collector that starts while the database does not answer writes its
// settings when it answers again.
func TestDatabaseGoneAtStart(t *testing.T) {
	way := dbtest.NewWay(t)
	w := newWorld(t, dbtest.Connect(t, way.Database), Options{})
	log, warned := io.Pipe()
	var err error
	w.c, err = New(w.DB, w.Store, Options{
		ReviewAfter: map[string]time.Duration{EventBlobUpload: 7 * time.Second}, Logger: slog.New(slog.NewTextHandler(warned, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	way.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- w.c.Run(ctx)
		_ = warned.Close()
	}()
	if n, err := log.Read(make([]byte, 1000)); err != nil {
		t.Fatalf("the collector ended without a warning: %d, %v", n, err)
	}
	way.Open()
	go func() { _, _ = io.Copy(io.Discard, log) }()
	for delays := map[string]time.Duration{}; delays[EventBlobUpload] != 7*time.Second; {
		if delays, err = w.c.ReviewAfter(t.Context()); err != nil {
			t.Log(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
