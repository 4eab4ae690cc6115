package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// serviceManager tells systemd about the server: ready, alive, stopping. Without
// NOTIFY_SOCKET in the environment it does nothing.
type serviceManager struct {
	alive func(context.Context) error // fails if the server does not answer
	log   *slog.Logger
}

func (s *server) serviceManager() serviceManager {
	client := &http.Client{Transport: s.self.config().Transport}
	return serviceManager{log: s.config.Logger, alive: func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.self.config().Host+"/livez", nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(req)
		if err != nil {
			return err
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("/livez answers %s", answer.Status)
		}
		return nil
	}}
}

// run reports readiness at once, then a sign of life twice in each interval of
// WatchdogSec, until ctx ends. It reports life only if /livez answers, through all
// handlers of the API. /livez does not ask the database: a restart of the server does not
// bring a database back.
func (m serviceManager) run(ctx context.Context) error {
	m.notify(daemon.SdNotifyReady)
	defer m.notify(daemon.SdNotifyStopping)
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		m.log.Warn("the watchdog of systemd is off: WATCHDOG_USEC cannot be read", "error", err)
	}
	if interval <= 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(interval / 2)
	defer ticker.Stop()
	for {
		if err := m.beat(ctx, interval/2); err != nil && ctx.Err() == nil {
			m.log.Error("the server does not answer itself; systemd gets no sign of life", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// beat sends one sign of life if the server answers within the limit.
func (m serviceManager) beat(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := m.alive(ctx); err != nil {
		return err
	}
	m.notify(daemon.SdNotifyWatchdog)
	return nil
}

// notify sends a message. A failure is logged: systemd acts by its own time limits.
func (m serviceManager) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		m.log.Warn("systemd could not be told", "message", state, "error", err)
	}
}
