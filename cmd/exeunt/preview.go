package main

import (
	"context"
	"fmt"
	"strings"

	about "github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// previewPage is how many items one request asks for: the most that the server
// allows. The server computes the preview again for each page.
const previewPage = 10_000

func newPreview() *cobra.Command {
	var t target
	var cascade string
	var o output
	var q previewQuery
	cmd := &cobra.Command{
		Use:   "preview KIND/NAME...",
		Short: "Show what deleting an object would take with it",
		Long: `Show what deleting an object would take with it, without deleting anything: first
what would block, then everything that is touched, as a tree.

  Delete  it is removed
  Orphan  it stays, and loses the reference to its owner
  Keep    it stays, because another owner keeps it, or the server refuses to
          delete it
  Block   it stays DELETING until its finalizers are removed or its grace period
          ends
  Wait    it is removed after other objects that block or wait

A question mark after an action means that the result depends on the order of the
collector's reviews. Each of several objects has a preview of its own.`,
		Example: `  exeunt preview deployment/web -n shop
  exeunt preview namespace/shop --counts
  exeunt preview deployment web --cascade=foreground -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if q.policy, err = parseCascade(cascade); err != nil {
				return err
			}
			if o.format != "" {
				q.lines = 0
			}
			return t.askEach(cmd, &o, args, func(c *client, ref v1.ObjectReference) (document, error) {
				p, err := askPreview(cmd.Context(), c, ref, q)
				if err != nil {
					return document{}, err
				}
				return previewed(p), nil
			})
		},
	}
	cmd.ValidArgsFunction = t.completeObjects
	t.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&cascade, "cascade", "", "what becomes of dependents: background, foreground or orphan (default: what the kind does)")
	complete(cmd, "cascade", words("background", "foreground", "orphan"))
	f.BoolVar(&q.counts, "counts", false, "counts only")
	f.IntVar(&q.lines, "lines", 200, "the most objects to show as a tree, the oldest first; 0: all")
	o.addFlag(cmd, "name")
	return cmd
}

func parseCascade(word string) (*metav1.DeletionPropagation, error) {
	var p metav1.DeletionPropagation
	switch strings.ToLower(word) {
	case "":
		return nil, nil
	case "background":
		p = metav1.DeletePropagationBackground
	case "foreground":
		p = metav1.DeletePropagationForeground
	case "orphan":
		p = metav1.DeletePropagationOrphan
	default:
		return nil, fmt.Errorf("--cascade %q: want background, foreground or orphan", word)
	}
	return &p, nil
}

// previewQuery has the values of the flags.
type previewQuery struct {
	policy *metav1.DeletionPropagation
	counts bool
	lines  int // limit of items; 0 means all
}

// askPreview requests pages up to the limit and joins them.
func askPreview(ctx context.Context, c *client, ref v1.ObjectReference, q previewQuery) (*v1.DeletionPreview, error) {
	spec := v1.DeletionPreviewSpec{Object: ref, PropagationPolicy: q.policy, CountsOnly: q.counts}
	if !q.counts {
		spec.Limit = previewPage
		if q.lines > 0 {
			spec.Limit = min(spec.Limit, int64(q.lines))
		}
	}
	var items []v1.Item
	hidden := int64(0)
	for {
		p := &v1.DeletionPreview{Spec: spec}
		p.SetGroupVersionKind(v1.GroupVersion.WithKind("DeletionPreview"))
		if err := c.ask(ctx, "deletionpreviews", p); err != nil {
			return nil, err
		}
		items = append(items, p.Status.Items...)
		hidden += p.Status.Hidden
		if p.Status.Continue == "" || q.lines > 0 && len(items) >= q.lines {
			p.Spec.Continue, p.Spec.Limit = "", 0
			p.Status.Items, p.Status.Hidden = items, hidden
			return p, nil
		}
		spec.Continue = p.Status.Continue
		if q.lines > 0 {
			spec.Limit = min(spec.Limit, int64(q.lines-len(items)))
		}
	}
}

// previewed is the answer in every format. The names are those of the objects that
// would be gone in the end.
func previewed(p *v1.DeletionPreview) document {
	d := document{value: p, text: func(out *printer) { writePreview(out, p) }}
	for i := range p.Status.Items {
		switch item := &p.Status.Items[i]; item.Action {
		case v1.Delete, v1.Block, v1.Wait:
			d.names = append(d.names, objectName(item.APIVersion, item.Kind, item.Name))
		}
	}
	return d
}

// actions is the order in which they are printed: those that need a person first.
var actions = []struct {
	action v1.Action
	means  string
}{
	{v1.Block, "will block"},
	{v1.Wait, "will wait for others"},
	{v1.Delete, "will be deleted"},
	{v1.Orphan, "will be orphaned"},
	{v1.Keep, "will be kept"},
}

func writePreview(out *printer, p *v1.DeletionPreview) {
	s := &p.Status
	if s.Refused != "" {
		out.line("The server would refuse to delete %s: %s. Nothing has been deleted.", about.Describe(s.Object), s.Refused)
		return
	}
	policy := ""
	if p.Spec.PropagationPolicy != nil {
		policy = fmt.Sprintf(" (%s)", strings.ToLower(string(*p.Spec.PropagationPolicy)))
	}
	out.line("Deleting %s%s touches %s. Nothing has been deleted.\n", about.Describe(s.Object), policy, counted(s.Total, "object"))
	for _, a := range actions {
		writeCounts(out, s.Counts, a.action, a.means)
	}
	if s.Truncated {
		out.line("  There are more objects than a preview follows: these are the least there are.")
	}
	if g := s.Guard; g != nil && g.Holds {
		where := ""
		if g.Namespace != "" {
			where = " in namespace " + g.Namespace
		}
		out.line("\nThe guard will hold this: %s would go, and %d may%s without confirmation.", counted(g.Deletes, "object"), g.Limit, where)
	}
	if len(s.Judges) > 0 {
		out.line("\nWhat is asked and may refuse a delete:")
		for _, judge := range s.Judges {
			out.line("  %s", judge)
		}
	}
	writeBlockers(out, s)
	if len(s.Items) > 0 {
		out.line("")
		writeItems(out, s)
	}
}

func writeCounts(p *printer, counts []v1.Count, action v1.Action, means string) {
	total := int64(0)
	var kinds []string
	for _, c := range counts {
		if c.Action == action {
			total += c.Count
			kinds = append(kinds, fmt.Sprintf("%d %s", c.Count, c.Kind))
		}
	}
	if total > 0 {
		p.line("  %6d %-21s%s", total, means, strings.Join(kinds, ", "))
	}
}

func writeBlockers(p *printer, s *v1.DeletionPreviewStatus) {
	if len(s.Blockers) == 0 {
		return
	}
	p.line("\nWhat blocks:")
	for _, item := range s.Blockers {
		p.line("  %s: %s", about.Describe(item.ObjectReference), item.Reason)
	}
	if more := s.BlockersTotal - int64(len(s.Blockers)); more > 0 {
		p.line("  and %d more", more)
	}
}

// writeItems draws each item below the item that causes its deletion.
func writeItems(p *printer, s *v1.DeletionPreviewStatus) {
	known := map[types.UID]bool{}
	for i := range s.Items {
		known[s.Items[i].UID] = true
	}
	below := map[types.UID][]*v1.Item{}
	for i := range s.Items {
		item := &s.Items[i]
		owner := item.Owner
		if !known[owner] || owner == item.UID || item.UID == s.Object.UID {
			owner = ""
		}
		below[owner] = append(below[owner], item)
	}
	tree := &itemTree{p: p, below: below, namespace: s.Object.Namespace}
	tree.write("", "", true)
	for i := range s.Items { // objects that own each other in a circle are below no root
		if len(tree.below) == 0 {
			break
		}
		tree.write(s.Items[i].UID, "", true)
	}
	if more := s.Total - int64(len(s.Items)) - s.Hidden; more > 0 {
		all := "all"
		if s.Hidden > 0 {
			all = "those that you may get"
		}
		p.line("and %d more; --lines 0 shows %s", more, all)
	}
	if s.Hidden > 0 {
		p.line("and %d that you may not get", s.Hidden)
	}
}

type itemTree struct {
	p         *printer
	below     map[types.UID][]*v1.Item
	namespace string // of the root: not printed for its items
}

// write draws the items below one. Roots have no branches.
func (t *itemTree) write(of types.UID, indent string, roots bool) {
	items := t.below[of]
	delete(t.below, of) // objects that own each other in a circle are drawn once
	for i, item := range items {
		branch, next := branches(i == len(items)-1, indent)
		if roots {
			branch, next = "", ""
		}
		name := item.Kind + " " + item.Name
		if item.Namespace != "" && item.Namespace != t.namespace {
			name = item.Kind + " " + item.Namespace + "/" + item.Name
		}
		mark := ""
		if item.Uncertain {
			mark = "?"
		}
		t.p.line("%s%s  %s%s: %s", branch, name, item.Action, mark, item.Reason)
		t.write(item.UID, next, false)
	}
}
