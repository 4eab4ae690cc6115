package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// health is the result of the command: what the server says about itself, and what of
// it needs a person.
type health struct {
	Server       string        `json:"server"` // its address
	Version      string        `json:"version"`
	Started      time.Time     `json:"started"`
	NotReady     []string      `json:"notReady,omitempty"` // the checks of /readyz that fail
	Replicas     []string      `json:"replicas,omitempty"` // the addresses of the Service kubernetes
	Database     database      `json:"database"`
	Disk         filesystem    `json:"disk"`
	Queues       []queueHealth `json:"queues"`
	Collector    collection    `json:"collector"`
	Registry     *images       `json:"registry,omitempty"`   // nil: the server has none
	LastBackup   *time.Time    `json:"lastBackup,omitempty"` // nil: exeunt backup create has never ended well
	Certificates []certificate `json:"certificates"`
	Problems     []string      `json:"problems"`
}

type (
	database struct {
		Engine string `json:"engine"`
		Bytes  int64  `json:"bytes"`
	}
	filesystem struct {
		Bytes int64 `json:"bytes"`
		Free  int64 `json:"free"`
	}
	queueHealth struct {
		Name    string `json:"name"`
		Depth   int    `json:"depth"`
		Overdue int    `json:"overdue"`
		Failing int    `json:"failing"`
		Lag     int    `json:"lagSeconds"` // since the first became due
	}
	images struct {
		GivenBackBytes int64 `json:"givenBackBytes"`
		UnlinkBytes    int64 `json:"unlinkBytes"`
	}
	certificate struct {
		Name    string    `json:"name"`
		Expires time.Time `json:"expires"`
	}
)

func newStatus() *cobra.Command {
	var t target
	var o output
	var ready bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show on one screen whether the server is well",
		Long: `Show on one screen whether the server is well: its replicas, database, disk,
review queues, collector, last backup and certificates. Problems come first.

The exit code is 0 if nothing needs a person, and 1 if something does or if the server
does not answer. The numbers are those of /metrics, at most 15 seconds old.

With --ready it prints nothing and asks only whether the server serves requests
(/readyz): for health checks, which must not restart a server because of a late backup.`,
		Example: "  exeunt status\n  exeunt status -o json\n  exeunt status --ready",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if ready {
				return t.ready(cmd.Context())
			}
			h, err := t.health(cmd.Context())
			if err != nil {
				return err
			}
			if err := o.print(cmd.OutOrStdout(), document{value: h, text: func(w io.Writer) error { return h.write(w, time.Now()) }}); err != nil {
				return err
			}
			if n := len(h.Problems); n > 0 {
				return fmt.Errorf("%s", counted(n, "problem"))
			}
			return nil
		},
	}
	t.addServerFlags(cmd)
	cmd.Flags().BoolVar(&ready, "ready", false, "print nothing; exit code 0: the server serves requests, 1: it does not")
	o.addFlag(cmd)
	return cmd
}

// ready fails unless the server is ready.
func (t *target) ready(ctx context.Context) error {
	server, err := t.connect()
	if err != nil {
		return err
	}
	if failing := notReady(ctx, server); len(failing) > 0 {
		return fmt.Errorf("not ready: %s", strings.Join(failing, ", "))
	}
	return nil
}

// health asks the server. It fails if the server does not answer, or refuses.
func (t *target) health(ctx context.Context) (*health, error) {
	server, err := t.connect()
	if err != nil {
		return nil, err
	}
	h := &health{Server: server.Get().URL().Host, Problems: []string{}}
	var version apiversion.Info
	if err := answer(server.Get().AbsPath("/version").Do(ctx), &version); err != nil {
		return nil, err
	}
	h.Version = version.GitVersion
	if err := answer(server.Get().AbsPath("/exeunt/gc").Do(ctx), &h.Collector); err != nil {
		return nil, err
	}
	found := server.Get().AbsPath("/exeunt/registry/gc").Do(ctx)
	if !apierrors.IsNotFound(found.Error()) {
		h.Registry = &images{}
		if err := answer(found, h.Registry); err != nil {
			return nil, err
		}
	}
	var slice discoveryv1.EndpointSlice
	if err := answer(server.Get().AbsPath("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").Do(ctx), &slice); err != nil {
		return nil, err
	}
	for _, e := range slice.Endpoints {
		h.Replicas = append(h.Replicas, e.Addresses...)
	}
	if err := h.readMetrics(ctx, server); err != nil {
		return nil, err
	}
	h.NotReady = notReady(ctx, server)
	h.Problems = append(h.Problems, h.problems(time.Now())...)
	return h, nil
}

// notReady returns the checks of /readyz that fail.
func notReady(ctx context.Context, server rest.Interface) (failing []string) {
	raw, err := server.Get().AbsPath("/readyz").Param("verbose", "").Do(ctx).Raw()
	if refused := apierrors.APIStatus(nil); errors.As(err, &refused) && refused.Status().Details != nil {
		// The client library puts an answer that is text into the error.
		for _, cause := range refused.Status().Details.Causes {
			raw = append(raw, cause.Message...)
		}
	}
	for line := range strings.Lines(string(raw)) {
		if check, ok := strings.CutPrefix(line, "[-]"); ok {
			failing = append(failing, strings.TrimSpace(check))
		}
	}
	if err != nil && len(failing) == 0 {
		failing = append(failing, shortest(err).Error())
	}
	return failing
}

// readMetrics reads the numbers from /metrics.
func (h *health) readMetrics(ctx context.Context, server rest.Interface) error {
	raw, err := server.Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("read the metrics: %w", shortest(err))
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("read the metrics: %w", err)
	}
	each := func(name, label string, fn func(of string, value float64)) {
		for _, m := range families[name].GetMetric() {
			of := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == label {
					of = l.GetValue()
				}
			}
			fn(of, m.GetGauge().GetValue()+m.GetUntyped().GetValue())
		}
	}
	each("process_start_time_seconds", "", func(_ string, v float64) { h.Started = time.Unix(int64(v), 0).UTC() })
	each("exeunt_database_size_bytes", "engine", func(engine string, v float64) { h.Database = database{engine, int64(v)} })
	each("exeunt_data_disk_size_bytes", "", func(_ string, v float64) { h.Disk.Bytes = int64(v) })
	each("exeunt_data_disk_free_bytes", "", func(_ string, v float64) { h.Disk.Free = int64(v) })
	each("exeunt_backup_last_success_timestamp_seconds", "", func(_ string, v float64) {
		at := time.Unix(int64(v), 0).UTC()
		h.LastBackup = &at
	})
	each("exeunt_certificate_expiry_timestamp_seconds", "certificate", func(name string, v float64) {
		h.Certificates = append(h.Certificates, certificate{name, time.Unix(int64(v), 0).UTC()})
	})
	each("exeunt_review_queue_depth", "queue", func(name string, v float64) {
		h.Queues = append(h.Queues, queueHealth{Name: name, Depth: int(v)})
	})
	for i := range h.Queues {
		q := &h.Queues[i]
		for metric, field := range map[string]*int{"overdue": &q.Overdue, "failing": &q.Failing, "lag_seconds": &q.Lag} {
			each("exeunt_review_queue_"+metric, "queue", func(name string, v float64) {
				if name == q.Name {
					*field = int(v)
				}
			})
		}
	}
	return nil
}

const (
	// lateAfter is how late a queue may be: a large cascade takes minutes.
	lateAfter = 5 * time.Minute
	// expiresSoon is shorter than the 31 days at which the server renews its own
	// certificates, so only those that it cannot renew are problems.
	expiresSoon = 30 * 24 * time.Hour
	// oldBackup is how old the last backup may be, if there is one: a daily one may be late.
	oldBackup = 2 * 24 * time.Hour
	// leastFree is the part of the disk that must be free.
	leastFree = 0.1
)

// problems lists what needs a person. It is pure.
func (h *health) problems(now time.Time) (found []string) {
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, check := range h.NotReady {
		add("not ready: %s", check)
	}
	if h.Collector.Paused {
		add("the collector is paused (%s): exeunt gc resume", h.Collector.Reason)
	}
	if h.Collector.Refused > 0 {
		add("%s of the collector refused by webhooks or policies, or without an answer: exeunt gc status", counted(h.Collector.Refused, "delete"))
	}
	for _, q := range h.Queues {
		if q.Failing > 0 {
			add("queue %s: %s failing; the log and exeunt gc status say why", q.Name, counted(q.Failing, "review"))
		}
		if late := time.Duration(q.Lag) * time.Second; late > lateAfter && !h.Collector.Paused {
			add("queue %s: %s late", q.Name, late)
		}
	}
	if d := h.Disk; d.Bytes > 0 && float64(d.Free) < leastFree*float64(d.Bytes) {
		add("the disk is nearly full: %s of %s free", humanBytes(d.Free), humanBytes(d.Bytes))
	}
	if h.LastBackup != nil && now.Sub(*h.LastBackup) > oldBackup {
		add("the last backup is from %s: exeunt backup create", h.LastBackup.Format(time.DateOnly))
	}
	for _, c := range h.Certificates {
		if left := c.Expires.Sub(now); left < expiresSoon {
			add("the %s certificate expires on %s", c.Name, c.Expires.Format(time.DateOnly))
		}
	}
	return found
}

// write prints the status for people, problems first.
func (h *health) write(w io.Writer, now time.Time) error {
	p := &printer{out: w}
	for _, problem := range h.Problems {
		p.line("PROBLEM     %s", problem)
	}
	p.line("server      %s, %s, up %s", h.Server, h.Version, now.Sub(h.Started).Round(time.Second))
	p.line("replicas    %s", strings.Join(h.Replicas, ", "))
	p.line("database    %s, %s", h.Database.Engine, humanBytes(h.Database.Bytes))
	if h.Disk.Bytes > 0 {
		p.line("disk        %s of %s free", humanBytes(h.Disk.Free), humanBytes(h.Disk.Bytes))
	}
	collector := "running"
	if h.Collector.Paused {
		collector = "PAUSED: " + h.Collector.Reason
	}
	p.line("collector   %s", collector)
	if r := h.Registry; r != nil {
		p.line("registry    %s given back today (UTC), %s to be removed", humanBytes(r.GivenBackBytes), humanBytes(r.UnlinkBytes))
	}
	if h.LastBackup != nil {
		p.line("backup      %s, %s ago", h.LastBackup.Format("2006-01-02 15:04 UTC"), now.Sub(*h.LastBackup).Round(time.Second))
	} else {
		p.line("backup      none by exeunt backup create")
	}
	for _, c := range h.Certificates {
		p.line("certificate %s, until %s", c.Name, c.Expires.Format(time.DateOnly))
	}
	p.line("\n%-36s %8s %8s %8s %8s", "QUEUE", "DEPTH", "DUE", "FAILING", "LATE")
	for _, q := range h.Queues {
		p.line("%-36s %8d %8d %8d %8s", q.Name, q.Depth, q.Overdue, q.Failing, time.Duration(q.Lag)*time.Second)
	}
	return p.err
}
