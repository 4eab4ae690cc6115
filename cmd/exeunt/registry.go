package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
)

func newRegistry() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "registry",
		Short: "Verify, collect, import and undelete in the OCI registry",
		Long:  "Manage the OCI registry of a running server.",
	}
	cmd.AddCommand(newRegistryVerify(), newRegistryGC(), newRegistryUndelete(), newRegistryImport())
	return cmd
}

func newRegistryGC() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Show and control the registry's garbage collection",
		Long: `Show and control the garbage collection of the registry.

A manifest without a tag, a list or a subject that keeps it, and a blob that no
manifest uses, are reviewed some time after the event that made them garbage. The
review removes them if nothing refers to them by then. "exeunt gc pause" pauses
this collection too.`,
	}
	cmd.AddCommand(
		newRegistryVerb("stats", "Show the queues, the delays and what is turned off", http.MethodGet, "/gc", writeRegistryStats),
		newRegistryVerb("run", "Review now what is due, and wait for the result", http.MethodPost, "/gc/run", writeRegistryRun),
		newRegistryDryRun(),
		newRegistryReviewAfter(),
	)
	return cmd
}

func newRegistryVerb(name, short, method, path string, write writeAnswer) *cobra.Command {
	var r registryCommand
	cmd := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.run(cmd.Context(), cmd.OutOrStdout(), registryRequest{method, path, nil}, write)
		},
	}
	r.addFlags(cmd)
	return cmd
}

func newRegistryDryRun() *cobra.Command {
	var r registryCommand
	cmd := &cobra.Command{
		Use:   "dry-run [REPOSITORY:TAG]",
		Short: "Show what would be removed if every review ran now",
		Long: `Show what would be removed if every review ran now. With REPOSITORY:TAG: show what
would be removed because this tag is deleted, beside what is garbage already. Nothing is
removed.`,
		Example: "  exeunt registry gc dry-run\n  exeunt registry gc dry-run shop/web:v1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ask := registryRequest{http.MethodGet, "/gc/dry-run", map[string]string{}}
			if len(args) == 1 {
				colon := strings.LastIndex(args[0], ":")
				if colon < 0 {
					return fmt.Errorf("%q has no tag: use, for instance, shop/web:v1", args[0])
				}
				ask.parameters["repository"], ask.parameters["tag"] = args[0][:colon], args[0][colon+1:]
			}
			return r.run(cmd.Context(), cmd.OutOrStdout(), ask, writeRegistryPlan)
		},
	}
	r.addFlags(cmd)
	return cmd
}

func newRegistryReviewAfter() *cobra.Command {
	var r registryCommand
	cmd := &cobra.Command{
		Use:   "review-after EVENT DURATION",
		Short: "Set the delay between an event and the review of its subject",
		Long: `Set the delay between an event and the review of its subject, for all replicas.
"exeunt registry gc stats" lists the events. Rows that are in the queues keep their
time.

The delay of existence_check is the least for blobs and manifests: within it, a push
may rely on what the server said exists. To review sooner, set it first.`,
		Example: "  exeunt registry gc review-after tag_delete 72h",
		Args:    exactly(2, `EVENT DURATION, for instance tag_delete 72h; "exeunt registry gc stats" lists the events`),
		RunE: func(cmd *cobra.Command, args []string) error {
			set := registryRequest{http.MethodPost, "/gc/review-after", map[string]string{"event": args[0], "after": args[1]}}
			return r.run(cmd.Context(), cmd.OutOrStdout(), set, writeDelays)
		},
	}
	r.addFlags(cmd)
	cmd.ValidArgsFunction = r.completeEvents
	return cmd
}

// registryCommand has the flags that the subcommands share.
type registryCommand struct {
	target
	output
}

type registryRequest struct {
	method, path string
	parameters   map[string]string
}

// writeAnswer prints an answer of the server for people.
type writeAnswer func(p *printer, raw []byte) error

func (r *registryCommand) addFlags(cmd *cobra.Command) {
	r.addServerFlags(cmd)
	r.addFlag(cmd, r.formats...)
}

func (r *registryCommand) run(ctx context.Context, out io.Writer, q registryRequest, write writeAnswer) error {
	raw, err := r.ask(ctx, q)
	if err != nil {
		return err
	}
	return r.print(out, document{value: raw, text: forPeople(raw, write)})
}

// ask sends the request and returns the answer.
func (r *registryCommand) ask(ctx context.Context, q registryRequest) (json.RawMessage, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	server, err := r.connect()
	if err != nil {
		return nil, err
	}
	request := server.Verb(q.method).AbsPath("/exeunt/registry" + q.path)
	for name, value := range q.parameters {
		request = request.Param(name, value)
	}
	var raw json.RawMessage
	err = answer(request.Do(ctx), &raw)
	return raw, err
}

func forPeople(raw json.RawMessage, write writeAnswer) func(io.Writer) error {
	return func(w io.Writer) error {
		p := &printer{out: w}
		if err := write(p, raw); err != nil {
			return fmt.Errorf("read the server's answer: %w", err)
		}
		return p.err
	}
}

// reviewQueue is a queue in the answer of the server.
type reviewQueue struct {
	Depth, Overdue, Claimed, Failing int
	Due                              *time.Time
}

func writeRegistryStats(p *printer, raw []byte) error {
	var s struct {
		Paused, Off, CollectManifests, CollectBlobs, CollectSignatures bool
		Repositories                                                   reviewQueue
		Manifests, Blobs, Unlinks                                      reviewQueue
		UnlinkBytes, GivenBackBytes                                    int64
		Uploads, AbandonedUploads                                      int
		ReviewAfter                                                    map[string]string
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	if s.Off {
		p.line("this server does not collect by itself (flag of the server): others do, and \"registry gc run\"")
	}
	switch {
	case s.Paused:
		p.line("PAUSED: resume with: exeunt gc resume")
	case !s.CollectManifests && !s.CollectBlobs:
		p.line("manifests and blobs are not collected (flags of the server)")
	case !s.CollectManifests:
		p.line("manifests are not collected (flag of the server)")
	case !s.CollectBlobs:
		p.line("blobs are not collected (flag of the server)")
	}
	if !s.CollectSignatures {
		p.line("tags that cosign made for an image stay when the image goes (flag of the server)")
	}
	switch n := s.Repositories.Depth; {
	case n == 1:
		p.line("1 repository was deleted; its content goes when it leaves the archive")
	case n > 1:
		p.line("%d repositories were deleted; their content goes when they leave the archive", n)
	}
	for _, q := range []struct {
		name string
		reviewQueue
	}{{"manifests", s.Manifests}, {"blobs", s.Blobs}, {"bytes", s.Unlinks}} {
		text := fmt.Sprintf("%-10s %d queued, of them %d due, %d under review, %d failing", q.name+":", q.Depth, q.Overdue, q.Claimed, q.Failing)
		if q.Due != nil && q.Overdue == 0 {
			text += ", next in " + time.Until(*q.Due).Round(time.Second).String()
		}
		p.line("%s", text)
	}
	p.line("%-10s %s wait to be removed", "", humanBytes(s.UnlinkBytes))
	p.line("%-10s %s were given back today (UTC)", "", humanBytes(s.GivenBackBytes))
	p.line("%-10s %d open, of them %d abandoned", "uploads:", s.Uploads, s.AbandonedUploads)
	p.line("\nreviewed after:")
	return writeSorted(p, s.ReviewAfter)
}

func writeDelays(p *printer, raw []byte) error {
	var delays map[string]string
	if err := json.Unmarshal(raw, &delays); err != nil {
		return err
	}
	return writeSorted(p, delays)
}

// writeSorted prints the delays as they are set, and what holds instead: existence_check is the
// least of all events but those that remove bytes.
func writeSorted(p *printer, texts map[string]string) error {
	least, _ := time.ParseDuration(texts["existence_check"])
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text := texts[name]
		if after, err := time.ParseDuration(text); err == nil && after < least && name != "blob_delete" && name != "upload_delete" {
			text += fmt.Sprintf(" (but not before existence_check: %v)", least)
		}
		p.line("  %-22s %s", name, text)
	}
	return nil
}

func writeRegistryRun(p *printer, raw []byte) error {
	var r struct {
		Paused, Complete                 bool
		Manifests, Blobs, Paths, Uploads int
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	if r.Paused {
		p.line("PAUSED: nothing was done; resume with: exeunt gc resume")
		return nil
	}
	p.line("removed: %s, %s, the bytes of %d, %s", counted(r.Manifests, "manifest"), counted(r.Blobs, "blob"), r.Paths, counted(r.Uploads, "abandoned upload"))
	if !r.Complete {
		p.line("more is due: run it again")
	}
	return nil
}

func writeRegistryPlan(p *printer, raw []byte) error {
	var plan struct {
		Manifests []struct{ Repository, Digest string }
		Tags      []struct{ Repository, Name string }
		Blobs     []struct {
			Digest string
			Size   int64
		}
		Uploads int
		Bytes   int64
	}
	if err := json.Unmarshal(raw, &plan); err != nil {
		return err
	}
	for _, m := range plan.Manifests {
		p.line("manifest  %s@%s", planned(m.Repository), m.Digest)
	}
	for _, t := range plan.Tags {
		p.line("tag       %s:%s", planned(t.Repository), t.Name)
	}
	for _, b := range plan.Blobs {
		p.line("blob      %s  %s", b.Digest, humanBytes(b.Size))
	}
	p.line("%s, %s, %s and %s would go: %s", counted(len(plan.Manifests), "manifest"), counted(len(plan.Tags), "tag"),
		counted(len(plan.Blobs), "blob"), counted(plan.Uploads, "abandoned upload"), humanBytes(plan.Bytes))
	return nil
}

// planned returns the name of a repository in a plan. A deleted one has no path:
// the plan has an @ and the uid of its Repository.
func planned(repository string) string {
	if uid, deleted := strings.CutPrefix(repository, "@"); deleted {
		return "(deleted Repository " + uid + ")"
	}
	return repository
}

// humanBytes returns a size in the notation of Kubernetes: 12Mi.
func humanBytes(n int64) string {
	unit := int64(1)
	for _, next := range []int64{1 << 10, 1 << 20, 1 << 30, 1 << 40} {
		if n >= 10*next {
			unit = next
		}
	}
	return resource.NewQuantity(n/unit*unit, resource.BinarySI).String() + "B"
}
