package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	about "github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// removalRequest is the request that removed an object.
type removalRequest struct {
	RequestID   string          `json:"requestID"`
	RequestedBy string          `json:"requestedBy"`
	RemovedAt   time.Time       `json:"removedAt"`
	Event       json.RawMessage `json:"event,omitempty"` // its line in the audit log
}

// findRequest finds the request that removed an object and, if there is a log, its
// audit event.
func findRequest(a *v1.ArchivedObject, log string) (*removalRequest, error) {
	s := a.Spec
	if s.RequestID == "" {
		return nil, fmt.Errorf("no request removed %s %s: the server did it by itself (%s)", s.Kind, about.Printable(s.Name), s.Actor)
	}
	r := &removalRequest{RequestID: s.RequestID, RequestedBy: s.RequestedBy, RemovedAt: s.RemovedAt.UTC()}
	if log == "" {
		return r, nil
	}
	files, err := auditFiles(log)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if r.Event, err = findEvent(file, s.RequestID); err != nil || r.Event != nil {
			return r, err
		}
	}
	return nil, fmt.Errorf("%s and the files rotated from it do not have the request %s; another replica may have served it", log, s.RequestID)
}

// auditFiles returns the audit log, then the files that were rotated from it, the newest
// first: their names have the time.
func auditFiles(log string) ([]string, error) {
	dir, ext := filepath.Dir(log), filepath.Ext(log)
	prefix := strings.TrimSuffix(filepath.Base(log), ext) + "-"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	var rotated []string
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".gz"); strings.HasPrefix(name, prefix) && strings.HasSuffix(name, ext) {
			rotated = append(rotated, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(rotated)
	slices.Reverse(rotated)
	return append([]string{log}, rotated...), nil
}

// findEvent returns the last event of a request in a file, or nil if the file has none.
func findEvent(path, id string) (found json.RawMessage, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("read audit log: %s: %w", path, err)
		}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(id)) {
			continue
		}
		var e auditv1.Event
		if json.Unmarshal(lines.Bytes(), &e) == nil && string(e.AuditID) == id {
			found = bytes.Clone(lines.Bytes())
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read audit log: %s: %w", path, err)
	}
	return found, nil
}

// write prints the request for people, and below it the audit event as the log has it.
func (r *removalRequest) write(p *printer) {
	fields := [][2]string{{"Request", r.RequestID}, {"User", r.RequestedBy}, {"Removed", r.RemovedAt.Format(time.RFC3339)}}
	if r.Event == nil {
		writeFields(p, fields)
		return
	}
	var e auditv1.Event
	if err := json.Unmarshal(r.Event, &e); err != nil {
		p.err = fmt.Errorf("read audit event: %w", err)
		return
	}
	writeFields(p, append(fields, [2]string{"Received", e.RequestReceivedTimestamp.UTC().Format(time.RFC3339)},
		[2]string{"From", strings.Join(e.SourceIPs, ", ")}, [2]string{"Client", e.UserAgent}, [2]string{"Asked for", e.Verb + " " + e.RequestURI}))
	fmt.Fprintf(p, "%s\n", r.Event)
}
