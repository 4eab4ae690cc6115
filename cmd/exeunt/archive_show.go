package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	about "github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
)

func newArchiveShow() *cobra.Command {
	var t target
	var o output
	var request bool
	var log string
	cmd := &cobra.Command{
		Use:   "show UID | KIND/NAME",
		Short: "Show a removed object: who deleted it, with what, and its last state",
		Long: `Show a removed object: the one that had a uid, or the newest removed one of a
name. The kind may be one whose definition was deleted.

With --request, show the request that removed it instead: its Audit-Id, its user and,
with the server's audit log at hand, the event.`,
		Example: `  exeunt archive show configmap/settings -n shop
  exeunt archive show 5f1f4c1e-… -o yaml
  exeunt archive show configmap/settings -n shop --request --audit-log /var/log/exeunt/audit.log`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := t.connect()
			if err != nil {
				return err
			}
			a, err := findArchived(cmd.Context(), client, &t, args[0])
			if err != nil {
				return err
			}
			if request || log != "" {
				r, err := findRequest(a, log)
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), document{value: r, names: []string{r.RequestID}, text: r.write})
			}
			return o.print(cmd.OutOrStdout(), document{
				value: a, names: []string{objectName(a.Spec.APIVersion, a.Spec.Kind, a.Spec.Name)},
				text: func(p *printer) { writeArchived(p, a) },
			})
		},
	}
	t.addFlags(cmd)
	cmd.ValidArgsFunction = t.completeArchived
	cmd.Flags().BoolVar(&request, "request", false, "show the request that removed the object")
	cmd.Flags().StringVar(&log, "audit-log", "", "audit log `FILE` in which to find the request, with the files rotated from it")
	o.addFlag(cmd, "name")
	return cmd
}

// findArchived asks the server for the object that an argument names. It finds a
// cluster-scoped object in every namespace.
func findArchived(ctx context.Context, client rest.Interface, t *target, argument string) (*v1.ArchivedObject, error) {
	kind, name, isName := strings.Cut(argument, "/")
	if !isName {
		return firstArchived(ctx, client, "", "metadata.name="+fields.EscapeValue(argument), argument)
	}
	if kind == "" || name == "" {
		return nil, fmt.Errorf("%q is neither a UID nor KIND/NAME", argument)
	}
	f := archiveFilter{kind: kind, name: name}
	namespace, err := t.currentNamespace()
	if err != nil {
		return nil, err
	}
	a, err := firstArchived(ctx, client, namespace, f.selector(), argument)
	if err == nil || t.namespace != "" {
		return a, err
	}
	if other, elsewhere := firstArchived(ctx, client, "", f.selector(), argument); elsewhere == nil {
		if other.Spec.Namespace == "" {
			return other, nil
		}
		return nil, fmt.Errorf("%w; one was in namespace %s: -n %[2]s", err, about.Quote(other.Spec.Namespace))
	}
	return nil, err
}

func firstArchived(ctx context.Context, client rest.Interface, namespace, selector, argument string) (*v1.ArchivedObject, error) {
	page, err := archivePage(ctx, client, namespace, selector, 1, "")
	switch {
	case err != nil:
		return nil, fmt.Errorf("show archived object: %w", err)
	case len(page.Items) > 0:
		return &page.Items[0], nil
	case namespace != "":
		return nil, fmt.Errorf("the archive has no %s in namespace %s", about.Printable(argument), namespace)
	}
	return nil, fmt.Errorf("the archive has no %s", about.Printable(argument))
}

// writeFields prints a line for each field that is not empty.
func writeFields(p *printer, fields [][2]string) {
	var rows [][]any
	for _, f := range fields {
		if f[1] != "" {
			rows = append(rows, []any{f[0] + ":", f[1]})
		}
	}
	p.table(2, rows)
}

// writeArchived prints the archive row and, below it, the object.
func writeArchived(p *printer, a *v1.ArchivedObject) {
	s := a.Spec
	writeFields(p, [][2]string{
		{"Kind", s.Kind + " (" + s.APIVersion + ")"}, {"Namespace", s.Namespace}, {"Name", s.Name}, {"UID", string(s.UID)},
		{"Removed", s.RemovedAt.UTC().Format(time.RFC3339) + ", " + duration.HumanDuration(time.Since(s.RemovedAt.Time)) + " ago"},
		{"Expires", v1.Left(s.ExpiresAt)}, {"Requested by", s.RequestedBy}, {"Request", s.RequestID}, {"Actor", s.Actor}, {"Cascade", s.Cascade}, {"Size", counted(s.Size, "byte")},
	})
	if a.Object == nil {
		p.line("Object:  not kept; it cannot be restored")
		return
	}
	text, err := yaml.JSONToYAML(a.Object.Raw)
	if err != nil {
		p.err = err
		return
	}
	fmt.Fprintf(p, "Object:\n  %s\n", strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  "))
}

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
