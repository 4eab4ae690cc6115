package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/cmd/exeunt/explain"
	"github.com/exeunt/exeunt/server"
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
does not answer. The numbers of the queues are at most 15 seconds old.

With --ready it prints nothing and asks only whether the server serves requests
(/readyz): for health checks, which must not restart a server because of a late backup.`,
		Example: "  exeunt status\n  exeunt status -o json\n  exeunt status --ready",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ready {
				return t.ready(cmd.Context())
			}
			h, err := t.health(cmd.Context())
			if err != nil {
				return err
			}
			if err := o.print(cmd.OutOrStdout(), document{value: h, text: func(p *printer) { writeStatus(p, h, time.Now()) }}); err != nil {
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
	client, err := t.connect()
	if err != nil {
		return err
	}
	if failing := notReady(ctx, client); len(failing) > 0 {
		return fmt.Errorf("not ready: %s", strings.Join(failing, ", "))
	}
	return nil
}

// health asks the server. It fails if the server does not answer, or refuses.
func (t *target) health(ctx context.Context) (*server.Status, error) {
	client, err := t.connect()
	if err != nil {
		return nil, err
	}
	h := &server.Status{}
	if err := answer(client.Get().AbsPath(server.StatusPath).Do(ctx), h); err != nil {
		return nil, err
	}
	h.Server = client.Get().URL().Host
	h.Problems = append(h.Problems, problems(h, time.Now())...)
	return h, nil
}

// notReady returns the checks of /readyz that fail.
func notReady(ctx context.Context, client rest.Interface) (failing []string) {
	raw, err := client.Get().AbsPath("/readyz").Param("verbose", "").Do(ctx).Raw()
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
		failing = append(failing, explain.Shortest(err).Error())
	}
	return failing
}

const (
	// lateAfter is how late a queue may be: a large cascade takes minutes.
	lateAfter = 5 * time.Minute
	// expiresSoon is shorter than the 31 days at which the server renews its own
	// certificates, so only those that it cannot renew are problems.
	expiresSoon = 30 * 24 * time.Hour
	// leastFree is the part of the disk that must be free.
	leastFree = 0.1
)

// problems lists what needs a person. It is pure.
func problems(h *server.Status, now time.Time) (found []string) {
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
	if d := h.Disk; d.Full {
		add("the disk is full (%s free), and what needs more space is refused: delete what is not needed, then exeunt archive purge", humanBytes(d.Free))
	} else if d.Bytes > 0 && float64(d.Free) < leastFree*float64(d.Bytes) {
		add("the disk is nearly full: %s of %s free", humanBytes(d.Free), humanBytes(d.Bytes))
	}
	if h.BackupDue != nil && now.After(*h.BackupDue) {
		if h.LastBackup == nil {
			add("there is no backup: exeunt backup create, or the setting backup-to")
		} else {
			add("the last backup is from %s: exeunt backup create; the log says why the server made none", h.LastBackup.Format("2006-01-02 15:04 UTC"))
		}
	}
	for _, c := range h.Certificates {
		if left := c.Expires.Sub(now); left < expiresSoon {
			add("the %s certificate expires on %s", c.Name, c.Expires.Format(time.DateOnly))
		}
	}
	return found
}

// writeStatus prints the status for people, problems first.
func writeStatus(p *printer, h *server.Status, now time.Time) {
	for _, problem := range h.Problems {
		p.line("PROBLEM     %s", problem)
	}
	p.line("server      %s, %s, up %s", h.Server, h.Version, now.Sub(h.Started).Round(time.Second))
	if h.Database.Engine == "" {
		return // the database does not answer
	}
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
		if r.Move != nil {
			p.line("            %s", r.Move)
		}
	}
	if h.LastBackup != nil {
		p.line("backup      %s, %s ago", h.LastBackup.Format("2006-01-02 15:04 UTC"), now.Sub(*h.LastBackup).Round(time.Second))
	} else {
		p.line("backup      none by exeunt backup create")
	}
	if b := h.Backup; b != nil {
		p.line("            one runs since %s: %s", now.Sub(b.At).Round(time.Second), server.DescribeBackup(b.Progress))
	}
	for _, w := range h.Works {
		p.line("running     %s, since %s: %s", w.What, now.Sub(w.Since).Round(time.Second), w.Far)
	}
	for _, c := range h.Certificates {
		p.line("certificate %s, until %s", c.Name, c.Expires.Format(time.DateOnly))
	}
	if h.Keys != nil {
		p.line("secrets     %s", h.Keys)
	}
	p.line("\n%-36s %8s %8s %8s %8s", "QUEUE", "DEPTH", "DUE", "FAILING", "LATE")
	for _, q := range h.Queues {
		p.line("%-36s %8d %8d %8d %8s", q.Name, q.Depth, q.Overdue, q.Failing, time.Duration(q.Lag)*time.Second)
	}
}
