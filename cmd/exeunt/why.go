package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	about "github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/internal/task"
)

func newWhy() *cobra.Command {
	var t target
	var o output
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "why KIND/NAME...",
		Short: "Show why an object or namespace still exists, and what to do about it",
		Long: `Show why an object or a namespace still exists: a tree of reasons, each with its
remedy. Reasons are finalizers and the clients that set them, blocking dependents,
the grace period, the content of a namespace, and failures of the collector.

For an object that is not being deleted, show its owners and what a delete would
remove with it. For an object that does not exist, the exit code is 1, and the
error says when it was deleted and how to restore it; --watch ends then.`,
		Example: `  exeunt why deployment/web -n shop
  exeunt why namespace shop --watch`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch && o.format != "" {
				return fmt.Errorf("--watch prints text only: leave out -o")
			}
			if interval <= 0 {
				return fmt.Errorf("--interval %v: must be positive", interval)
			}
			if watch {
				return t.watch(cmd, args, interval)
			}
			return t.askEach(cmd, &o, args, func(c *client, ref v1.ObjectReference) (document, error) {
				return why(cmd.Context(), c, ref)
			})
		},
	}
	cmd.ValidArgsFunction = t.completeObjects
	t.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVarP(&watch, "watch", "w", false, "run until the object is gone, and show changes")
	f.DurationVar(&interval, "interval", time.Second, "how often --watch asks the server")
	o.addFlag(cmd, "name")
	return cmd
}

// watch shows the report of one object until the object is gone.
func (t *target) watch(cmd *cobra.Command, args []string, interval time.Duration) error {
	s, err := oneSubject(args)
	if err != nil {
		return err
	}
	c, err := t.open()
	if err != nil {
		return err
	}
	ref, err := c.resolve(s)
	if err != nil {
		return err
	}
	return watchReport(cmd.Context(), c, ref, interval, cmd.OutOrStdout())
}

// why returns the report about one object. If the object and its cascade are gone,
// it returns an error with the content of the report.
func why(ctx context.Context, c *client, ref v1.ObjectReference) (document, error) {
	r, err := askReport(ctx, c, ref)
	if err != nil {
		return document{}, err
	}
	d := reported(r)
	switch {
	case !r.Status.Exists && r.Status.Remaining == 0:
		d.text = func(*printer) {}
		return d, errors.New(absentText(&r.Status, time.Now()))
	case r.Status.State != v1.Active:
		return d, nil
	}
	p, err := askPreview(ctx, c, ref, previewQuery{counts: true})
	if err != nil {
		return d, err
	}
	report := d.text
	d.text = func(out *printer) {
		report(out)
		writeTaken(out, p)
	}
	return d, nil
}

// absentText says that an object does not exist, when it was deleted, and how to
// restore it.
func absentText(s *v1.DeletionReportStatus, now time.Time) string {
	text := about.Describe(s.Object) + " does not exist"
	for i := range s.Reasons {
		if r := &s.Reasons[i]; r.Type == v1.ReasonGone {
			text += ": " + about.Printable(r.Message)
			if r.Since != nil {
				text += fmt.Sprintf(" at %s, %v ago", r.Since.Local().Format(time.DateTime), now.Sub(r.Since.Time).Round(time.Second))
			}
			if r.Resolve != "" {
				text += "; " + r.Resolve
			}
			return text
		}
	}
	return text + ", and the archive has no object of this name: look for it with exeunt archive list"
}

// writeTaken prints what a delete of an ACTIVE object would remove with it.
func writeTaken(out *printer, p *v1.DeletionPreview) {
	if p.Status.Refused != "" {
		out.line("The server would refuse to delete it: %s.", p.Status.Refused)
		return
	}
	goes := map[string]int64{}
	total := int64(0)
	for _, c := range p.Status.Counts {
		switch c.Action {
		case v1.Delete, v1.Block, v1.Wait:
			goes[c.Kind] += c.Count
			total += c.Count
		}
	}
	object := p.Status.Object
	goes[object.Kind]-- // without the object itself
	var others []string
	for _, kind := range slices.Sorted(maps.Keys(goes)) {
		if goes[kind] > 0 {
			others = append(others, fmt.Sprintf("%d %s", goes[kind], kind))
		}
	}
	if len(others) == 0 {
		out.line("A delete would take nothing else with it.")
		return
	}
	namespace := ""
	if object.Namespace != "" {
		namespace = " -n " + about.Quote(object.Namespace)
	}
	out.line("A delete would take %s with it: %s. To see them: exeunt preview %s%s", counted(total-1, "other object"),
		strings.Join(others, ", "), about.Quote(objectName(object.APIVersion, object.Kind, object.Name)), namespace)
}

// reported is the answer in every format. The names are those of the objects in the
// reasons: what to look at next.
func reported(r *v1.DeletionReport) document {
	d := document{value: r, text: func(p *printer) { writeReport(p, &r.Status, time.Now()) }}
	var visit func([]v1.Reason)
	visit = func(reasons []v1.Reason) {
		for i := range reasons {
			if about := reasons[i].Object; about != nil {
				d.names = append(d.names, objectName(about.APIVersion, about.Kind, about.Name))
			}
			visit(reasons[i].Children)
		}
	}
	visit(r.Status.Reasons)
	return d
}

func askReport(ctx context.Context, c *client, ref v1.ObjectReference) (*v1.DeletionReport, error) {
	r := &v1.DeletionReport{Spec: v1.DeletionReportSpec{Object: ref}}
	r.SetGroupVersionKind(v1.GroupVersion.WithKind("DeletionReport"))
	return r, c.ask(ctx, "deletionreports", r)
}

// watchReport prints the report whenever it changes, and the progress of the
// cascade, until the object and its cascade are gone.
func watchReport(ctx context.Context, c *client, ref v1.ObjectReference, interval time.Duration, w io.Writer) error {
	var told string
	most, last := int64(0), int64(0)
	for p := (&printer{out: w}); ; {
		r, err := askReport(ctx, c, ref)
		if err != nil {
			return err
		}
		s := &r.Status
		ref.UID = s.Object.UID // do not follow a later object of the same name
		// Compare without times: they change although nothing happens.
		if text := reportText(s, time.Time{}); text != told {
			told = text
			writeReport(p, s, time.Now())
		}
		if s.Remaining < last {
			p.line("%d gone, %d remaining", most-s.Remaining, s.Remaining)
		}
		most, last = max(most, s.Remaining), s.Remaining
		if p.err != nil || !s.Exists && s.Remaining == 0 {
			return p.err
		}
		if !task.Sleep(ctx, interval) {
			return nil
		}
	}
}

// reportText is the text of writeReport.
func reportText(s *v1.DeletionReportStatus, now time.Time) string {
	var b strings.Builder
	writeReport(&printer{out: &b}, s, now)
	return b.String()
}

// writeReport prints a report for people. With the zero time it leaves out everything that
// depends on the time.
func writeReport(p *printer, s *v1.DeletionReportStatus, now time.Time) {
	switch s.State {
	case v1.Active:
		p.line("%s is ACTIVE: it is not being deleted.", about.Describe(s.Object))
	case v1.Deleting:
		p.line("%s is DELETING.", about.Describe(s.Object))
	default:
		p.line("%s does not exist.", about.Describe(s.Object))
	}
	switch {
	case s.Remaining > 0 && s.Exists:
		p.line("%s to go first.", counted(s.Remaining, "object"))
	case s.Remaining > 0:
		p.line("%s to follow it.", counted(s.Remaining, "object"))
	}
	writeReasons(p, s.Reasons, "", now)
	if s.State == v1.Deleting && len(s.Reasons) == 0 {
		p.line("Nothing holds it: it is about to go.")
	}
	if s.Truncated {
		p.line("There is more below that is not shown.")
	}
}

func writeReasons(p *printer, reasons []v1.Reason, indent string, now time.Time) {
	for i := range reasons {
		r := &reasons[i]
		branch, next := branches(i == len(reasons)-1, indent)
		message := r.Message
		if now.IsZero() && (r.Type == v1.ReasonGracePeriod || r.Type == v1.ReasonReview || r.Type == v1.ReasonAdmission) {
			message = ""
		}
		since := ""
		if r.Since != nil && !now.IsZero() {
			since = fmt.Sprintf(" (since %v)", now.Sub(r.Since.Time).Round(time.Second))
		}
		p.line("%s%s: %s%s", branch, r.Type, message, since)
		if r.Resolve != "" {
			p.line("%sto resolve: %s", next, r.Resolve)
		}
		writeReasons(p, r.Children, next, now)
	}
}

// branches returns what precedes a node of a tree, and what precedes the lines below it.
func branches(last bool, indent string) (node, below string) {
	if last {
		return indent + "└─ ", indent + "   "
	}
	return indent + "├─ ", indent + "│  "
}

func newFinalizer() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "finalizer",
		Short: "Override a finalizer whose controller does not remove it",
	}
	cmd.AddCommand(newFinalizerRemove())
	return cmd
}

func newFinalizerRemove() *cobra.Command {
	var t target
	var spec v1.FinalizerRemovalSpec
	var o output
	var uid string
	cmd := &cobra.Command{
		Use:   "remove KIND/NAME FINALIZER --reason TEXT",
		Short: "Remove a controller's finalizer from an object that is being deleted",
		Long: `Remove a finalizer from an object that is being deleted, if the controller that
should remove it never will. Resources that the controller would have cleaned up
stay. If nothing else holds the object, it is removed.

The server records the reason and your name in an Event about the object, which
outlives the object, and in its log. "exeunt why" shows what holds an object.`,
		Example: `  exeunt finalizer remove configmap/web-state backup.example.com/snapshot -n shop \
    --reason "the backup operator was uninstalled"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, finalizer, err := finalizerArguments(args)
			if err != nil {
				return err
			}
			if strings.TrimSpace(spec.Reason) == "" {
				return errors.New("--reason: say why; the reason is recorded in an Event about the object")
			}
			c, err := t.open()
			if err != nil {
				return err
			}
			if spec.Object, err = c.resolveAnyway(s); err != nil {
				return err
			}
			spec.Object.UID, spec.Finalizer = types.UID(uid), finalizer
			return removeFinalizer(cmd.Context(), c, spec, &o, cmd.OutOrStdout())
		},
	}
	t.addFlags(cmd)
	cmd.ValidArgsFunction = t.completeFinalizers
	f := cmd.Flags()
	f.StringVar(&spec.Reason, "reason", "", "the reason, recorded in an Event and in the log; required")
	f.StringVar(&uid, "uid", "", "only if the object has this uid")
	f.BoolVar(&spec.DryRun, "dry-run", false, "show what would happen to the object, and change nothing")
	o.addFlag(cmd, "name")
	return cmd
}

func removeFinalizer(ctx context.Context, c *client, spec v1.FinalizerRemovalSpec, o *output, w io.Writer) error {
	r := &v1.FinalizerRemoval{Spec: spec}
	r.SetGroupVersionKind(v1.GroupVersion.WithKind("FinalizerRemoval"))
	if err := c.ask(ctx, "finalizerremovals", r); err != nil {
		return err
	}
	about := r.Status.Object
	return o.print(w, document{value: r, names: []string{objectName(about.APIVersion, about.Kind, about.Name)}, text: func(p *printer) {
		p.line("%s", removalText(r))
	}})
}

func removalText(r *v1.FinalizerRemoval) string {
	became := "the object is gone"
	if left := r.Status.Finalizers; len(left) > 0 {
		became = "still held by " + strings.Join(left, ", ")
	} else if !r.Status.Gone {
		became = "no finalizer is left, but its grace period is not over"
	}
	suffix := ""
	if r.Spec.DryRun {
		suffix = " (dry run)"
	}
	return fmt.Sprintf("%s: finalizer %s removed; %s%s", about.Describe(r.Status.Object), r.Spec.Finalizer, became, suffix)
}

// resolveAnyway also resolves a kind that the server does not serve because its
// definition is broken: the argument is then PLURAL.GROUP/NAME.
func (c *client) resolveAnyway(s subject) (v1.ObjectReference, error) {
	ref, err := c.resolve(s)
	plural, group, grouped := strings.Cut(s.kind, ".")
	if err == nil || !grouped || !errors.As(err, new(noKindError)) {
		return ref, err
	}
	return v1.ObjectReference{APIVersion: group, Kind: plural, Namespace: c.namespace, Name: s.name}, nil
}

// finalizerArguments reads KIND/NAME FINALIZER, or KIND NAME FINALIZER.
func finalizerArguments(args []string) (subject, string, error) {
	const want = "name the object and its finalizer: KIND/NAME FINALIZER; \"exeunt why KIND/NAME\" lists the finalizers"
	switch {
	case len(args) < 2, len(args) == 2 && !strings.Contains(args[0], "/"):
		return subject{}, "", errors.New(want)
	case len(args) > 3:
		return subject{}, "", fmt.Errorf("%d arguments: %s", len(args), want)
	}
	s, err := oneSubject(args[:len(args)-1])
	return s, args[len(args)-1], err
}
