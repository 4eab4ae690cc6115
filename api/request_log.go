package api

import (
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/metrics"
)

const (
	// maxLoggedQuery and maxLoggedAgent limit, in bytes, what the log says about a request.
	maxLoggedQuery = 256
	maxLoggedAgent = 64
)

// logRequest logs a request that took longer than Config.SlowRequest, with its steps,
// and every request if Config.LogRequests says so. A watch lasts as long as its client
// wants, and paths outside the API may wait (profiles, nodes of the mesh): they are never slow.
func (a *API) logRequest(seen *observedWriter, req *http.Request, took time.Duration) {
	limits := a.limits.Load()
	slow := limits.SlowRequest > 0 && took >= limits.SlowRequest && seen.request.Resource != "" && seen.request.Verb != metrics.MethodWatch
	if !slow && !limits.LogRequests {
		return
	}
	attributes := []any{"method", clip(req.Method, maxLoggedAgent), "path", clip(req.URL.Path, maxLoggedQuery)}
	if seen.request.Resource != "" && req.URL.RawQuery != "" { // elsewhere it may have a secret
		attributes = append(attributes, "query", clip(req.URL.RawQuery, maxLoggedQuery))
	}
	attributes = append(attributes, "status", seen.code, "took", took.Round(time.Millisecond/100),
		"user", seen.user, "agent", clip(req.UserAgent(), maxLoggedAgent), "from", req.RemoteAddr, "audit", seen.Header().Get("Audit-Id"))
	if slow {
		a.log.Warn("slow request", append(attributes, "steps", seen.steps.String())...)
		return
	}
	a.log.Info("request", attributes...)
}

// clip shortens a text of a client.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:limit] + "…"
}
