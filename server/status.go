package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"

	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/backup"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/registry/underway"
	"github.com/exeunt/exeunt/sqldb/schema"
	"github.com/exeunt/exeunt/store/seal"
)

// StatusPath is where administrators read the Status.
const StatusPath = "/exeunt/status"

// databasePart is the name of the part that checks the database.
const databasePart = "database"

// Status is what the server says about itself, and what of it needs a person. Each part
// fills in its own.
type Status struct {
	Server       string          `json:"server,omitempty"` // its address, as the client knows it
	Version      string          `json:"version"`
	Started      time.Time       `json:"started"`
	NotReady     []string        `json:"notReady,omitempty"` // the checks of /readyz that fail
	Replicas     []string        `json:"replicas,omitempty"` // the addresses of the Service kubernetes, one for each process
	Database     Database        `json:"database"`
	Disk         Disk            `json:"disk"`
	Queues       []Queue         `json:"queues"`
	Collector    gc.Status       `json:"collector"`
	Registry     *Images         `json:"registry,omitempty"`   // nil if the server has no registry
	LastBackup   *time.Time      `json:"lastBackup,omitempty"` // nil if no backup has ended well
	Backup       *backup.Running `json:"backup,omitempty"`     // nil if none runs
	Works        []underway.Work `json:"works,omitempty"`      // imports into the registry and verifications of it
	BackupDue    *time.Time      `json:"backupDue,omitempty"`  // when the next one must have ended; nil if the data is not kept
	Certificates []Certificate   `json:"certificates"`
	Keys         *seal.Rotation  `json:"keys,omitempty"` // a change of the key that seals Secrets; nil if the file has one key
	Problems     []string        `json:"problems"`       // what could not be asked; the client adds what the numbers mean
}

type (
	// Database is the state of the database.
	Database struct {
		Engine string `json:"engine"`
		Bytes  int64  `json:"bytes"`
	}
	// Disk is the file system that holds the data directory. It is zero if the system does not tell.
	Disk struct {
		Bytes int64 `json:"bytes"`
		Free  int64 `json:"free"`
		Full  bool  `json:"full,omitempty"` // what needs more space is refused
	}
	// Queue is the state of a review queue, at most 15 seconds old.
	Queue struct {
		Name    string `json:"name"`
		Depth   int    `json:"depth"`
		Overdue int    `json:"overdue"`
		Failing int    `json:"failing"`
		Lag     int    `json:"lagSeconds"` // since the first became due
	}
	// Images is the state of the registry's collector.
	Images struct {
		GivenBackBytes int64 `json:"givenBackBytes"`
		UnlinkBytes    int64 `json:"unlinkBytes"`

		Move *ImagesMove `json:"move,omitempty"` // nil if the bytes have one place
	}
	// ImagesMove is a move of the registry's bytes to another place.
	ImagesMove struct {
		Left  int64 `json:"left"`  // files in the old place
		Ended bool  `json:"ended"` // nothing needs the old place any more
	}
	// Certificate is a certificate of the server.
	Certificate struct {
		Name    string    `json:"name"`
		Expires time.Time `json:"expires"`
	}
)

func (m *ImagesMove) String() string {
	if m.Ended {
		return `all bytes are in the new place: take ",from=…" out of registry-storage`
	}
	return fmt.Sprintf("files to be moved to the new place: %d", m.Left)
}

// statusTimeout bounds the questions of one Status.
const statusTimeout = 10 * time.Second

// status asks all parts. What a part cannot tell is a problem, and does not hide the others.
func (s *server) status(ctx context.Context) *Status {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	all := &Status{Version: s.config.Version, Started: s.started.UTC(), Queues: []Queue{}, Certificates: []Certificate{}, Problems: []string{}}
	for _, p := range s.parts {
		if p.check == nil {
			continue
		}
		if err := p.check(ctx); err != nil {
			all.NotReady = append(all.NotReady, p.name)
			if p.name == databasePart { // all parts would say the same
				first, _, _ := strings.Cut(err.Error(), "\n")
				all.Problems = append(all.Problems, "the database does not answer, so nothing else is known: "+first)
				return all
			}
		}
	}
	for _, p := range s.parts {
		for _, e := range p.queues {
			stats, err := e.Recent()
			if err != nil {
				all.Problems = append(all.Problems, fmt.Sprintf("queue %s cannot be read: %v", e.Name(), err))
				continue
			}
			q := Queue{Name: e.Name(), Depth: stats.Depth, Overdue: stats.Overdue, Failing: stats.Failing}
			if !stats.Due.IsZero() {
				q.Lag = max(0, int(time.Since(stats.Due).Seconds()))
			}
			all.Queues = append(all.Queues, q)
		}
		if p.status != nil {
			if err := p.status(ctx, all); err != nil {
				all.Problems = append(all.Problems, fmt.Sprintf("%s: %v", p.name, err))
			}
		}
	}
	return all
}

func (s *server) serveStatus(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.status(req.Context())) // the client may be gone
}

// noteStart says what the server has found. It reads the queues, so it runs beside the
// first requests.
func (s *server) noteStart(ctx context.Context) {
	if s.config.Ephemeral && !s.config.Logger.Enabled(ctx, slog.LevelInfo) {
		return // a test waits for its first requests
	}
	steps, err := schema.Migrations(string(s.db.Engine())) // an open database has all
	objects, countErr := s.store.Count(ctx)
	status := s.status(ctx)
	queue := status.Collector
	if ctx.Err() != nil {
		return // it stops already
	}
	level := slog.LevelInfo
	attributes := []any{
		"version", s.config.Version, "database", string(s.db.Engine()), "schema", len(steps), "revision", s.store.Revision(),
		"objects", objects, "reviews", queue.Depth, "overdue", queue.Overdue, "failing", queue.Failing, "paused", queue.Paused,
	}
	if waiting := waitingReviews(status.Queues); waiting != "" {
		attributes = append(attributes, "waiting", waiting)
	}
	if err := errors.Join(err, countErr); err != nil || len(status.Problems) > 0 {
		level = slog.LevelWarn
		attributes = append(attributes, "error", err, "problems", strings.Join(status.Problems, "; "))
	}
	s.config.Logger.Log(ctx, level, "server started", attributes...)
}

// waitingReviews names the queues that have reviews which are due, with their numbers: those of the
// registry, the broker and the mesh too.
func waitingReviews(queues []Queue) string {
	var due []string
	for _, q := range queues {
		if q.Overdue > 0 {
			due = append(due, fmt.Sprintf("%s: %d", q.Name, q.Overdue))
		}
	}
	return strings.Join(due, ", ")
}

// noteStop says why the server stops.
func noteStop(ctx, storeCtx context.Context, log *slog.Logger) {
	switch {
	case storeCtx.Err() != nil:
		log.Error("shutting down: the store stopped")
	case ctx.Err() != nil:
		log.Info("shutting down: signal received")
	default:
		log.Error("shutting down: a part failed")
	}
}

// addZPages serves Kubernetes' /statusz and /flagz, with the settings in force as flags.
func (s *server) addZPages() {
	release := compatibility.NewEffectiveVersionFromString("1."+api.KubernetesMinor, "", "")
	statusz.Install(s.extra, "exeunt", statusz.NewRegistry(release, statusz.WithListedPaths([]string{"/healthz", "/livez", "/metrics", "/readyz", "/version"})))
	flagz.Install(s.extra, "exeunt", s.reloads)
}
