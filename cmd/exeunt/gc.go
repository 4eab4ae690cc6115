package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// collection is the answer of /exeunt/gc.
type collection struct {
	Paused   bool       `json:"paused"`
	Reason   string     `json:"reason,omitempty"`
	Depth    int        `json:"depth"`
	Overdue  int        `json:"overdue"`
	Claimed  int        `json:"claimed"`
	Failing  int        `json:"failing"`
	Asking   int        `json:"asking"` // deletes that wait for webhooks or policies
	Refused  int        `json:"refused"`
	Oldest   *time.Time `json:"oldest,omitempty"`
	Found    *int       `json:"found,omitempty"` // by a scan
	Failures []failure  `json:"failures,omitempty"`
}

// failure is a review that failed last time.
type failure struct {
	UID       string    `json:"uid"`
	Kind      string    `json:"kind,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Event     string    `json:"event"`
	Error     string    `json:"error"`
	Attempts  int       `json:"attempts"`
	Next      time.Time `json:"next"`
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
	var g gcCommand
	cmd := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.run(cmd.Context(), cmd.OutOrStdout(), method, path, nil)
		},
	}
	g.addFlags(cmd)
	return cmd
}

func newGCPause() *cobra.Command {
	var g gcCommand
	var reason string
	cmd := &cobra.Command{
		Use: "pause", Short: "Pause the collector on every replica", Args: cobra.NoArgs,
		Example: `  exeunt gc pause --reason "restoring what the release deleted"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.run(cmd.Context(), cmd.OutOrStdout(), http.MethodPost, "/pause", map[string]string{"reason": reason})
		},
	}
	g.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, which \"gc status\" shows")
	return cmd
}

// gcCommand has the flags that the subcommands share.
type gcCommand struct {
	target
	output
}

func (g *gcCommand) addFlags(cmd *cobra.Command) {
	g.addServerFlags(cmd)
	g.addFlag(cmd)
}

func (g *gcCommand) run(ctx context.Context, out io.Writer, method, path string, parameters map[string]string) error {
	if err := g.check(); err != nil {
		return err
	}
	server, err := g.connect()
	if err != nil {
		return err
	}
	request := server.Verb(method).AbsPath("/exeunt/gc" + path)
	for name, value := range parameters {
		request = request.Param(name, value)
	}
	var raw json.RawMessage
	if err := answer(request.Do(ctx), &raw); err != nil {
		return err
	}
	return g.print(out, document{value: raw, text: func(w io.Writer) error {
		var c collection
		if err := json.Unmarshal(raw, &c); err != nil {
			return fmt.Errorf("read the server's answer: %w", err)
		}
		return c.write(w, time.Now())
	}})
}

// write prints the status for people, problems first.
func (c *collection) write(out io.Writer, now time.Time) error {
	p := &printer{out: out}
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
	return p.err
}
