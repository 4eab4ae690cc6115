package gc

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/exeunt/exeunt/store"
)

// Path is the prefix that ServeHTTP expects.
const Path = "/exeunt/gc"

// maxReason bounds the reason of a pause, in bytes.
const maxReason = 1000

// ServeHTTP shows and switches the collector:
//
//	GET  /exeunt/gc                    the Status, as JSON
//	POST /exeunt/gc/pause?reason=TEXT  stop every replica's collector
//	POST /exeunt/gc/resume             let them go on
//	POST /exeunt/gc/scan               enqueue reviews that no trigger enqueued
//
// Each POST answers with the Status after it; scan adds how many it found. The
// server authorizes the client before it calls ServeHTTP.
func (c *Collector) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	verb, _ := strings.CutPrefix(strings.TrimSuffix(req.URL.Path, "/"), Path)
	method := http.MethodPost
	if verb == "" {
		method = http.MethodGet
	}
	answer := struct {
		Status
		Found *int `json:"found,omitempty"`
	}{}
	var err error
	switch verb {
	case "", "/pause", "/resume", "/scan":
	default:
		http.NotFound(w, req)
		return
	}
	if req.Method != method {
		w.Header().Set("Allow", method)
		http.Error(w, "use "+method, http.StatusMethodNotAllowed)
		return
	}
	switch verb {
	case "/pause":
		reason := strings.ToValidUTF8(strings.ReplaceAll(req.URL.Query().Get("reason"), "\x00", ""), "\uFFFD")
		if len(reason) > maxReason {
			http.Error(w, "the reason is longer than 1000 bytes", http.StatusBadRequest)
			return
		}
		err = c.Pause(req.Context(), reason)
	case "/resume":
		err = c.Resume(req.Context())
	case "/scan":
		var found int
		found, err = c.Scan(req.Context())
		answer.Found = &found
	}
	if err == nil {
		answer.Status, err = c.Status(req.Context())
	}
	if err != nil {
		c.opts.Logger.Error("request to the collector failed", "path", req.URL.Path, "error", err)
		if store.Unavailable(err) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the server is stopping, or its database does not answer; please try again", http.StatusServiceUnavailable)
			return
		}
		http.Error(w, "internal error, see the server's log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // fails only if the client has disconnected
}
