package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/exeunt/exeunt/api/health"
)

// The server is alive while it answers. It is ready while the checks of its parts pass and
// it is not shutting down.
var probes = []string{"/healthz", "/livez", "/readyz"}

const shutdownCheck = "shutdown"

func isProbe(path string) bool {
	return slices.ContainsFunc(probes, func(probe string) bool { return path == probe || strings.HasPrefix(path, probe+"/") })
}

// checksOf returns the checks of a probe, by its name without the slash.
func (a *API) checksOf(probe string) []health.Check {
	all := []health.Check{{Name: "ping", Run: func(context.Context) error { return nil }}}
	if probe == "livez" {
		return all
	}
	if a.checks != nil {
		all = append(all, a.checks()...)
	}
	return append(all, health.Check{Name: shutdownCheck, Run: func(context.Context) error {
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
		checks = slices.DeleteFunc(checks, func(c health.Check) bool { return c.Name != check })
		if len(checks) == 0 {
			http.NotFound(w, req)
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), health.Timeout)
	defer cancel()
	var report strings.Builder
	healthy := true
	for _, c := range checks {
		err := c.Run(ctx)
		a.probes.Note(a.log, c.Name, err, c.Name == shutdownCheck)
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
