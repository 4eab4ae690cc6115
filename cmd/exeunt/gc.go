package main

import (
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/gc"
)

// collection is the answer of /exeunt/gc.
type collection struct {
	gc.Status
	Found *int `json:"found,omitempty"` // by a scan
}

func newGC() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Show, pause and resume the garbage collector",
		Long: `Show, pause and resume the garbage collector of a running server.

Every replica obeys a pause within a second. It survives restarts and lasts until
"exeunt gc resume". Meanwhile garbage waits in the queue.`,
	}
	cmd.AddCommand(
		newGCVerb("status", "Show whether the collector runs, its queue and its failures", http.MethodGet, ""),
		newGCPause(),
		newGCVerb("resume", "Resume the collector after a pause", http.MethodPost, "/resume"),
		newGCVerb("scan", "Look through all objects for garbage that is not in the queue", http.MethodPost, "/scan"),
	)
	return cmd
}

func newGCVerb(name, short, method, path string) *cobra.Command {
	return ask(&question{}, &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs}, func([]string) (request, error) {
		return request{method: method, path: gc.Path + path}, nil
	}, inText((*collection).write))
}

func newGCPause() *cobra.Command {
	var reason string
	cmd := ask(&question{}, &cobra.Command{
		Use: "pause", Short: "Pause the collector on every replica", Args: cobra.NoArgs,
		Example: `  exeunt gc pause --reason "restoring what the release deleted"`,
	}, func([]string) (request, error) {
		return request{method: http.MethodPost, path: gc.Path + "/pause", parameters: map[string]string{"reason": reason}}, nil
	}, inText((*collection).write))
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, which \"gc status\" shows")
	return cmd
}

// write prints the status for people, problems first.
func (c *collection) write(p *printer) {
	now := time.Now()
	switch {
	case c.Paused && c.Reason != "":
		p.line("PAUSED: %s", c.Reason)
	case c.Paused:
		p.line("PAUSED")
	default:
		p.line("running")
	}
	if c.Found != nil {
		p.line("found: %d that no review was queued for", *c.Found)
	}
	p.line("queue: %d, of them %d due, %d under review, %d failing", c.Depth, c.Overdue, c.Claimed, c.Failing)
	if c.Asking > 0 {
		p.line("waiting for webhooks or policies: %s, of them %d refused or without an answer", counted(c.Asking, "delete"), c.Refused)
	}
	if c.Oldest != nil {
		p.line("oldest: queued %s ago", now.Sub(*c.Oldest).Round(time.Second))
	}
	for _, f := range c.Failures {
		subject := "uid " + f.UID + " (gone)"
		if f.Name != "" {
			subject = f.Kind + " " + f.Name
			if f.Namespace != "" {
				subject += " in " + f.Namespace
			}
		}
		p.line("failing: %s, %s, next in %s: %s", subject, counted(f.Attempts, "time"), max(f.Next.Sub(now), 0).Round(time.Second), f.Error)
	}
	if c.Paused {
		p.line("\nresume with: exeunt gc resume")
	}
}
