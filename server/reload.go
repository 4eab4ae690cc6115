package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync/atomic"
)

// reloadable are the settings that a reload applies. All others need a restart, except
// for the content of certificate and token files, which the server follows by itself.
var reloadable = map[string]bool{
	"log-level": true, "log-requests": true, "slow-request": true, "max-cascade": true,
	"registry-max-blob-bytes": true, "registry-max-uploads": true, "registry-max-uploads-per-namespace": true,
}

// reloader reads the configuration again when a signal asks for it.
type reloader struct {
	signals <-chan struct{}        // nil: no reloads
	read    func() (Config, error) // checks what it read
	apply   func(Config)           // the reloadable settings
	log     *slog.Logger

	settings atomic.Pointer[[]Setting] // in force
}

func (s *server) newReloader() *reloader {
	r := &reloader{signals: s.config.Reload, read: s.config.ReadAgain, apply: s.apply, log: s.config.Logger}
	r.settings.Store(&s.config.Settings)
	return r
}

// apply puts the reloadable settings of a configuration in force. Each is applied by
// itself: a request that runs meanwhile may meet one new and one old value.
func (s *server) apply(c Config) {
	c = c.withDefaults()
	if s.config.SetLogLevel != nil {
		s.config.SetLogLevel(c.LogLevel)
	}
	for _, p := range s.parts {
		if p.reload != nil {
			p.reload(c)
		}
	}
}

// run reloads until ctx ends. One goroutine does it, so reloads never overlap. A signal
// that comes during a reload causes one more, which reads the newest file.
func (r *reloader) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.signals:
		}
		if ctx.Err() == nil {
			r.reload()
		}
	}
}

// reload applies what it can, all of it or, if the new configuration has an error,
// nothing.
func (r *reloader) reload() {
	next, err := r.read()
	if err != nil {
		r.log.Error("the new configuration has an error; keeping the current settings", "error", err)
		return
	}
	settings, applied, waiting := merge(*r.settings.Load(), next.Settings)
	r.apply(next)
	r.settings.Store(&settings)
	for _, s := range applied {
		r.log.Info("a setting has changed", "name", s.Name, "value", s.Value, "source", s.Source)
	}
	for _, s := range waiting {
		r.log.Warn("a changed setting needs a restart", "name", s.Name, "value", s.Value, "new", *s.Pending)
	}
	r.log.Info("the configuration was read again", "applied", len(applied), "waiting", len(waiting))
}

// merge returns the settings in force after a reload: those that were applied, and those
// that wait for a restart, with their new value as Pending.
func merge(old, next []Setting) (settings, applied, waiting []Setting) {
	fresh := map[string]Setting{}
	for _, s := range next {
		fresh[s.Name] = s
	}
	for _, s := range old {
		n := fresh[s.Name]
		switch {
		case n.Raw == s.Raw: // a new line in the file, or a way back before the restart
			s = n
		case reloadable[s.Name]:
			s = n
			applied = append(applied, s)
		default:
			s.Pending = &n.Value
			waiting = append(waiting, s)
		}
		settings = append(settings, s)
	}
	return settings, applied, waiting
}

// ServeHTTP answers with the settings in force.
func (r *reloader) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(*r.settings.Load()) // the client may be gone
}
