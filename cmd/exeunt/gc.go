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

// collection is what the server's /exeunt/gc answers.
type collection struct {
	Paused   bool
	Reason   string
	Depth    int
	Overdue  int
	Claimed  int
	Failing  int
	Oldest   *time.Time
	Found    *int // by a scan
	Failures []struct {
		UID, Kind, Namespace, Name, Event, Error string
		Attempts                                 int
		Next                                     time.Time
	}
}

func newGC() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Look at the garbage collector, stop it and let it go on",
		Long: `Look at the garbage collector of a running server, stop it and let it go on.

A pause is obeyed by every replica within a second, and lasts over restarts
until it is resumed. Meanwhile nothing is forgotten: what there is to collect
waits in the queue.`,
	}
	cmd.AddCommand(
		newGCVerb("status", "Show whether it runs, what waits for it, and what fails", http.MethodGet, ""),
		newGCPause(),
		newGCVerb("resume", "Let it go on after a pause", http.MethodPost, "/resume"),
		newGCVerb("scan", "Look through all objects for what no trigger noticed", http.MethodPost, "/scan"),
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
		Use: "pause", Short: "Stop it, on every replica", Args: cobra.NoArgs,
		Example: `  exeunt gc pause --reason "restoring what the release deleted"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.run(cmd.Context(), cmd.OutOrStdout(), http.MethodPost, "/pause", map[string]string{"reason": reason})
		},
	}
	g.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who find it paused")
	return cmd
}

// gcCommand is what the verbs have in common.
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

// write is the status for a person: what is wrong comes first.
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

// printer writes lines until one fails.
type printer struct {
	out io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format+"\n", args...)
	}
}
