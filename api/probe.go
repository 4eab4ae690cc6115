package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The server is alive while it answers. It is ready while the checks of its parts pass and
// it is not shutting down.
var probes = []string{"/healthz", "/livez", "/readyz"}

const shutdownCheck = "shutdown"

// Check says why a part of the server is not ready, or nil.
type Check struct {
	Name string
	Run  func(context.Context) error
}

// checkTimeout bounds one check.
const checkTimeout = 5 * time.Second

func isProbe(path string) bool {
	return slices.ContainsFunc(probes, func(probe string) bool { return path == probe || strings.HasPrefix(path, probe+"/") })
}

// checksOf returns the checks of a probe, by its name without the slash.
func (a *API) checksOf(probe string) []Check {
	all := []Check{{"ping", func(context.Context) error { return nil }}}
	if probe == "livez" {
		return all
	}
	if a.checks != nil {
		all = append(all, a.checks()...)
	}
	return append(all, Check{shutdownCheck, func(context.Context) error {
		if a.closing.Err() != nil {
			return errors.New("the server is shutting down")
		}
		return nil
	}})
}

// serveProbe answers for all checks of a probe, or for the one that the path
// names. The reason of a failure goes to the log only, since the path is public.
func (a *API) serveProbe(w http.ResponseWriter, req *http.Request, path string) {
	probe, check, one := strings.Cut(path[1:], "/")
	checks := a.checksOf(probe)
	if one {
		checks = slices.DeleteFunc(checks, func(c Check) bool { return c.Name != check })
		if len(checks) == 0 {
			http.NotFound(w, req)
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), checkTimeout)
	defer cancel()
	var report strings.Builder
	healthy := true
	for _, c := range checks {
		err := c.Run(ctx)
		a.probes.note(a.log, c.Name, err)
		if err != nil {
			healthy = false
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", c.Name)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.Name)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, verbose := req.URL.Query()["verbose"]
	switch {
	case !healthy:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "%s%s check failed\n", report.String(), probe)
	case verbose:
		fmt.Fprintf(w, "%s%s check passed\n", report.String(), probe)
	default:
		fmt.Fprint(w, "ok")
	}
}

// probeLog logs a check when its result changes, and not with each probe. The first
// failures of a check belong to the start: they are for debugging.
type probeLog struct {
	mu      sync.Mutex
	passed  map[string]bool   // checks that have passed once; guarded by mu
	failing map[string]string // the last reason of each check that fails; guarded by mu
}

func (p *probeLog) note(log *slog.Logger, check string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, failing := p.failing[check]
	switch {
	case err == nil && !failing:
		if !p.passed[check] {
			p.pass(check)
		}
	case err == nil:
		delete(p.failing, check)
		if p.passed[check] {
			log.Info("ready again", "check", check)
		}
		p.pass(check)
	case failing && before == err.Error():
	default:
		if p.failing == nil {
			p.failing = map[string]string{}
		}
		p.failing[check] = err.Error()
		level := slog.LevelWarn
		if !p.passed[check] || check == shutdownCheck {
			level = slog.LevelDebug
		}
		log.Log(context.Background(), level, "not ready", "check", check, "error", err)
	}
}

// pass remembers that a check has passed. The caller holds mu.
func (p *probeLog) pass(check string) {
	if p.passed == nil {
		p.passed = map[string]bool{}
	}
	p.passed[check] = true
}
