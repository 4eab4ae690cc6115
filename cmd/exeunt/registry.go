package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/collect"
	"github.com/exeunt/exeunt/registry/retain"
	registryv1 "github.com/exeunt/exeunt/registry/v1"
	"github.com/exeunt/exeunt/registry/verify"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/server"
)

func newRegistry() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "registry",
		Short: "Verify, collect, import and undelete in the OCI registry",
		Long:  "Manage the OCI registry of a running server.",
	}
	cmd.AddCommand(newRegistryVerify(), newRegistryGC(), newRegistryUndelete(), newRegistryImport(), newRegistryWhy(), newRegistryRetention())
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
		newRegistryVerb("stats", "Show the queues, the delays and what is turned off", http.MethodGet, "", writeRegistryStats),
		newRegistryVerb("run", "Review now what is due, and wait for the result", http.MethodPost, "/run", writeRegistryRun),
		newRegistryDryRun(),
		newRegistryReviewAfter(),
	)
	return cmd
}

const (
	registryPath   = "/exeunt/registry"
	registryGCPath = registryPath + "/gc"
)

func newRegistryVerb[T any](name, short, method, path string, write func(*T, *printer)) *cobra.Command {
	return ask(&question{}, &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs}, func([]string) (request, error) {
		return request{method: method, path: registryGCPath + path}, nil
	}, inText(write))
}

func newRegistryDryRun() *cobra.Command {
	return ask(&question{}, &cobra.Command{
		Use:   "dry-run [REPOSITORY:TAG]",
		Short: "Show what would be removed if every review ran now",
		Long: `Show what would be removed if every review ran now. With REPOSITORY:TAG: show what
would be removed because this tag is deleted, beside what is garbage already. Nothing is
removed.`,
		Example: "  exeunt registry gc dry-run\n  exeunt registry gc dry-run shop/web:v1",
		Args:    cobra.MaximumNArgs(1),
	}, func(args []string) (request, error) {
		r := request{method: http.MethodGet, path: registryGCPath + "/dry-run", parameters: map[string]string{}}
		if len(args) == 1 {
			colon := strings.LastIndex(args[0], ":")
			if colon < 0 {
				return r, fmt.Errorf("%q has no tag: use, for instance, shop/web:v1", args[0])
			}
			r.parameters["repository"], r.parameters["tag"] = args[0][:colon], args[0][colon+1:]
		}
		return r, nil
	}, inText(writeRegistryPlan))
}

func newRegistryReviewAfter() *cobra.Command {
	var q question
	cmd := ask(&q, &cobra.Command{
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
	}, inText(writeDelays))
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
	p.line("%-10s %s wait to be removed\n%-10s %s were given back today (UTC)", "", humanBytes(s.UnlinkBytes), "", humanBytes(s.Reclaimed))
	p.line("%-10s %d open, of them %d abandoned\n\nreviewed after:", "uploads:", s.Uploads, s.Abandoned)
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

// humanBytes returns a size: 12MiB.
func humanBytes(n int64) string { return registryv1.Size(n) + "B" }

func newRegistryVerify() *cobra.Command {
	var c *server.Config
	var o verify.Options
	var format output
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that every manifest has its blobs, and every blob its bytes",
		Long: `Check the registry: every manifest matches its digest and has its blobs; every blob
has its bytes, and they match its digest; garbage is queued for review; every
stored path has a row in the database.

Give it the server's --config, or the same --data, --database and --registry-storage,
and use the server's version of this program. It only reads, and the server may run:
requests and collection continue. Each finding is a line; with findings the exit
code is 1.

With --repair it marks blobs whose bytes are missing or damaged. From then on the
registry refuses pulls of them and says why, and the next push uploads them again,
which repairs them in all repositories at once. The line of each blob names images
that use it.`,
		Example: `  exeunt registry verify --data /var/lib/exeunt
  exeunt registry verify --repair
  exeunt registry verify --quick --database postgres://exeunt@db.example/exeunt --registry-storage s3://exeunt-blobs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := newStepLine(cmd)
			found := verification{Findings: []verify.Finding{}}
			o.Progress = func(v verify.Result) { p.show(server.DescribeVerified(v)) }
			o.Found = func(f verify.Finding) {
				p.clear()
				if format.format == "" { // a person need not wait for the end
					fmt.Fprintln(cmd.OutOrStdout(), f)
					return
				}
				found.Findings = append(found.Findings, f)
			}
			var err error
			found.Result, err = server.VerifyRegistry(cmd.Context(), *c, o)
			p.clear()
			if err != nil {
				return err
			}
			err = format.print(cmd.OutOrStdout(), document{value: found, text: func(p *printer) { p.line("%s", server.DescribeVerified(found.Result)) }})
			if n := found.Result.Findings; n > 0 {
				err = errors.Join(err, fmt.Errorf("found %s", counted(n, "problem")))
			}
			return err
		},
	}
	c = addPlaces(cmd, true)
	f := cmd.Flags()
	f.BoolVar(&o.Quick, "quick", false, "compare the sizes of blobs, and do not read them")
	f.BoolVar(&o.Repair, "repair", false, "mark missing and damaged blobs, so that the next push uploads them again")
	format.addFlag(cmd)
	return cmd
}

// verification is the result for scripts.
type verification struct {
	verify.Result
	Findings []verify.Finding `json:"findings"`
}

func newRegistryUndelete() *cobra.Command {
	var list, move bool
	cmd := ask(&question{}, &cobra.Command{
		Use:   "undelete REPO:TAG | REPO@DIGEST | REPO:TAG@DIGEST | --list [REPO]",
		Short: "Restore a deleted tag or manifest",
		Long: `Restore what was deleted from the registry and is not collected yet: a deleted
tag, a tag as it was before a push moved it to another manifest, or a manifest with
the tags that it had. A tag that points at another manifest now moves only with
--move-tag. "exeunt registry gc stats" shows how long that is possible,
unless spec.reviewAfterSeconds of the Repository says otherwise.

To restore a whole repository: "exeunt restore repository/NAME".`,
		Example: `  exeunt registry undelete --list shop/web
  exeunt registry undelete shop/web:v1
  exeunt registry undelete shop/web@sha256:9f86d0…
  exeunt registry undelete --move-tag shop/web:latest    # undo the last push of latest`,
		Args: cobra.MaximumNArgs(1),
	}, func(args []string) (request, error) {
		return undeleteRequest(list, move, strings.Join(args, ""))
	}, func(entries *[]registry.Deleted) document {
		d := document{text: func(p *printer) { writeUndeleted(p, *entries) }}
		if list {
			d.text = func(p *printer) { writeDeleted(p, *entries) }
		}
		for i := range *entries {
			d.names = append(d.names, deletedName(&(*entries)[i]))
		}
		return d
	}, "name")
	cmd.Flags().BoolVar(&move, "move-tag", false, "move the tag if it points at another manifest now; without this it is left as it is")
	cmd.Flags().BoolVar(&list, "list", false, "list what can be restored, in one repository or in all")
	return cmd
}

// undeleteRequest returns the request for the tag or manifest of the arguments.
func undeleteRequest(list, move bool, argument string) (request, error) {
	if list {
		return request{method: http.MethodGet, path: registryPath + "/deleted", parameters: map[string]string{"repository": argument}}, nil
	}
	rest, digest, _ := strings.Cut(argument, "@")
	repository, tag, _ := strings.Cut(rest, ":")
	if repository == "" || tag == "" && digest == "" {
		return request{}, errors.New("say what to bring back: REPO:TAG, REPO@DIGEST, or --list")
	}
	parameters := map[string]string{"repository": repository, "tag": tag, "digest": digest}
	if move {
		parameters["moveTag"] = "true"
	}
	return request{method: http.MethodPost, path: registryPath + "/undelete", parameters: parameters}, nil
}

func deletedName(d *registry.Deleted) string {
	if d.Tag == "" {
		return d.Repository + "@" + d.Digest
	}
	return d.Repository + ":" + d.Tag + "@" + d.Digest
}

// happened returns the text of an event.
var happened = map[string]string{
	"tag_delete": "deleted", "tag_switch": "switched", "manifest_delete": "deleted with its manifest",
}

func writeDeleted(p *printer, list []registry.Deleted) {
	for i := range list {
		d := &list[i]
		text := fmt.Sprintf("%s  %s %s ago", deletedName(d), cmp.Or(happened[d.Event], d.Event), time.Since(d.DeletedAt).Round(time.Second))
		if d.Until != nil {
			text += fmt.Sprintf(", reviewed in %s", max(time.Until(*d.Until), 0).Round(time.Second))
		}
		p.line("%s", text)
	}
	if len(list) == 0 {
		p.line("nothing can be brought back")
	}
}

func writeUndeleted(p *printer, list []registry.Deleted) {
	for i := range list {
		p.line("%s is back", deletedName(&list[i]))
	}
}

func newRegistryWhy() *cobra.Command {
	return ask(&question{}, &cobra.Command{
		Use: "why IMAGE", Short: "Show what keeps an image", Example: "  exeunt registry why shop/web:v1", Args: exactly(1, "IMAGE, for instance shop/web:v1"),
	}, func(args []string) (request, error) {
		return request{method: http.MethodGet, path: registryPath + "/holds", parameters: map[string]string{"image": args[0]}}, nil
	}, inText(func(h *collect.Holds, p *printer) { p.lines(h.Lines()) }))
}

func newRegistryRetention() *cobra.Command {
	var days int
	cmd := ask(&question{}, &cobra.Command{Use: "retention NAMESPACE [POLICY]", Short: "Show what retention policies would take now", Args: cobra.RangeArgs(1, 2)}, func(args []string) (request, error) {
		return request{method: http.MethodGet, path: retain.Path, parameters: map[string]string{"namespace": args[0], "policy": strings.Join(args[1:], ""), "days": fmt.Sprint(days)}}, nil
	}, inText(func(plan *retain.Plan, p *printer) { p.lines(plan.Lines()) }))
	cmd.Flags().IntVar(&days, "days", 0, "show the pulls that would have failed, had the policies run for so many days")
	return cmd
}
