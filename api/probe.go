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
)

// The server is alive while it answers. It is ready while its database answers, it
// knows the webhooks and policies, and it is not shutting down.
var (
	probes      = []string{"/healthz", "/livez", "/readyz"}
	aliveChecks = []string{"ping"}
	readyChecks = []string{"ping", "database", "admission", shutdownCheck}
)

const shutdownCheck = "shutdown"

func isProbe(path string) bool {
	return slices.ContainsFunc(probes, func(probe string) bool { return path == probe || strings.HasPrefix(path, probe+"/") })
}

// checksOf returns the checks of a probe, by its name without the slash.
func checksOf(probe string) []string {
	if probe == "livez" {
		return aliveChecks
	}
	return readyChecks
}

// serveProbe answers for all checks of a probe, or for the one that the path
// names. The reason of a failure goes to the log only, since the path is public.
func (a *API) serveProbe(w http.ResponseWriter, req *http.Request, path string) {
	probe, check, one := strings.Cut(path[1:], "/")
	checks := checksOf(probe)
	if one {
		if !slices.Contains(checks, check) {
			http.NotFound(w, req)
			return
		}
		checks = []string{check}
	}
	var report strings.Builder
	healthy := true
	for _, name := range checks {
		err := a.check(name)
		a.probes.note(a.log, name, err)
		if err != nil {
			healthy = false
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", name)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", name)
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

func (a *API) check(name string) error {
	switch {
	case name == shutdownCheck && a.closing.Err() != nil:
		return errors.New("the server is shutting down")
	case name == "database" && a.ready != nil:
		return a.ready()
	case name == "admission":
		return a.admit.Ready()
	}
	return nil
}
