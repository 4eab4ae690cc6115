package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/exeunt/exeunt/registry/collect"
	"github.com/exeunt/exeunt/review"
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
		newRegistryVerb("stats", "Show the queues, the delays and what is turned off", http.MethodGet, "", decoded(writeRegistryStats)),
		newRegistryVerb("run", "Review now what is due, and wait for the result", http.MethodPost, "/run", decoded(writeRegistryRun)),
		newRegistryDryRun(),
		newRegistryReviewAfter(),
	)
	return cmd
}

const (
	registryPath   = "/exeunt/registry"
	registryGCPath = registryPath + "/gc"
)

func newRegistryVerb(name, short, method, path string, write writeAnswer) *cobra.Command {
	var q question
	return q.command(&cobra.Command{Use: name, Short: short, Args: cobra.NoArgs}, func([]string) (request, error) {
		return request{method: method, path: registryGCPath + path}, nil
	}, write)
}

func newRegistryDryRun() *cobra.Command {
	var q question
	return q.command(&cobra.Command{
		Use:   "dry-run [REPOSITORY:TAG]",
		Short: "Show what would be removed if every review ran now",
		Long: `Show what would be removed if every review ran now. With REPOSITORY:TAG: show what
would be removed because this tag is deleted, beside what is garbage already. Nothing is
removed.`,
		Example: "  exeunt registry gc dry-run\n  exeunt registry gc dry-run shop/web:v1",
		Args:    cobra.MaximumNArgs(1),
	}, func(args []string) (request, error) {
		ask := request{method: http.MethodGet, path: registryGCPath + "/dry-run", parameters: map[string]string{}}
		if len(args) == 1 {
			colon := strings.LastIndex(args[0], ":")
			if colon < 0 {
				return ask, fmt.Errorf("%q has no tag: use, for instance, shop/web:v1", args[0])
			}
			ask.parameters["repository"], ask.parameters["tag"] = args[0][:colon], args[0][colon+1:]
		}
		return ask, nil
	}, decoded(writeRegistryPlan))
}

func newRegistryReviewAfter() *cobra.Command {
	var q question
	cmd := q.command(&cobra.Command{
		Use:   "review-after EVENT DURATION",
		Short: "Set the delay between an event and the review of its subject",
		Long: `Set the delay between an event and the review of its subject, for all replicas.
"exeunt registry gc stats" lists the events. Rows that are in the queues keep their
time.

The delay of existence_check is the least for blobs and manifests: within it, a push
may rely on what the server said exists. To review sooner, set it first.`,
		Example: "  exeunt registry gc review-after tag_delete 72h",
		Args:    exactly(2, `EVENT DURATION, for instance tag_delete 72h; "exeunt registry gc stats" lists the events`),
	}, func(args []string) (request, error) {
		return request{method: http.MethodPost, path: registryGCPath + "/review-after", parameters: map[string]string{"event": args[0], "after": args[1]}}, nil
	}, decoded(writeDelays))
	cmd.ValidArgsFunction = q.completeEvents
	return cmd
}

func writeRegistryStats(s *collect.Stats, p *printer) {
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
		review.Stats
	}{{"manifests", s.Manifests}, {"blobs", s.Blobs}, {"bytes", s.Unlinks}} {
		text := fmt.Sprintf("%-10s %d queued, of them %d due, %d under review, %d failing", q.name+":", q.Depth, q.Overdue, q.Claimed, q.Failing)
		if !q.Due.IsZero() && q.Overdue == 0 {
			text += ", next in " + time.Until(q.Due).Round(time.Second).String()
		}
		p.line("%s", text)
	}
	p.line("%-10s %s wait to be removed", "", humanBytes(s.UnlinkBytes))
	p.line("%-10s %s were given back today (UTC)", "", humanBytes(s.Reclaimed))
	p.line("%-10s %d open, of them %d abandoned", "uploads:", s.Uploads, s.Abandoned)
	p.line("\nreviewed after:")
	writeDelays(&s.ReviewAfter, p)
}

// writeDelays prints the delays as they are set, and what holds instead: existence_check is the
// least of all events but those that remove bytes.
func writeDelays(delays *map[string]string, p *printer) {
	least, _ := time.ParseDuration((*delays)["existence_check"])
	for _, name := range slices.Sorted(maps.Keys(*delays)) {
		text := (*delays)[name]
		if after, err := time.ParseDuration(text); err == nil && after < least && name != "blob_delete" && name != "upload_delete" {
			text += fmt.Sprintf(" (but not before existence_check: %v)", least)
		}
		p.line("  %-22s %s", name, text)
	}
}

func writeRegistryRun(r *collect.RunAnswer, p *printer) {
	if r.Paused {
		p.line("PAUSED: nothing was done; resume with: exeunt gc resume")
		return
	}
	p.line("removed: %s, %s, the bytes of %d, %s", counted(r.Manifests, "manifest"), counted(r.Blobs, "blob"), r.Paths, counted(r.Uploads, "abandoned upload"))
	if !r.Complete {
		p.line("more is due: run it again")
	}
}

func writeRegistryPlan(plan *collect.Plan, p *printer) {
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
