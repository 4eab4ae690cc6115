package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// The server is alive while it answers. It is ready while its database answers, it
// knows the webhooks and policies, and it is not shutting down.
var (
	probes      = []string{"/healthz", "/livez", "/readyz"}
	aliveChecks = []string{"ping"}
	readyChecks = []string{"ping", "database", "admission", "shutdown"}
)

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
		if err := a.check(name); err != nil {
			a.log.Warn("not ready", "check", name, "error", err)
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

func (a *API) check(name string) error {
	switch {
	case name == "shutdown" && a.closing.Err() != nil:
		return errors.New("the server is shutting down")
	case name == "database" && a.ready != nil:
		return a.ready()
	case name == "admission":
		return a.admit.Ready()
	}
	return nil
}
