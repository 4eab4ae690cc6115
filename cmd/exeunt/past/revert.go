package past

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// NewRevert is the command revert.
func NewRevert(s Session) *cobra.Command {
	var to string
	var dryRun, yes, withStatus bool
	cmd := &cobra.Command{
		Use:   "revert KIND/NAME --to TIME|VERSION",
		Short: "Bring an object, or a whole namespace, back to an earlier state",
		Long: `Bring an object back to what it was at a time, or a namespace with all that is in it: what is
gone since then is created, what differs is changed, and what is new is deleted. The command
shows that plan first, as the server would do it, and asks.

Every write is a request with your rights; webhooks, policies and quotas decide about it. What
cannot go back is a line with the reason. Status is left to the controllers, and so is, in a
namespace, what has a controller. Finalizers stay as they are. A revert is an operation of the
server (kubectl get restores), and goes on if you stop this command; the last line says how it
is undone.

` + Help,
		Example: `  exeunt revert deployment/web -n shop --to 10:00
  exeunt revert namespace/shop --to "2 hours ago" --dry-run
  exeunt revert namespace/shop --to 4711 --yes`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := s.Target(args)
			if err != nil {
				return err
			}
			spec.WithStatus, spec.DryRun = withStatus, dryRun
			if spec.To, err = Parse(to, time.Now()); err != nil {
				return err
			}
			if !yes && !dryRun {
				if err := ask(cmd, s, spec); err != nil {
					return err
				}
			}
			status, err := s.Restore(cmd.Context(), spec, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			done := &v1.Restore{Spec: spec, Status: status}
			done.SetGroupVersionKind(v1.GroupVersion.WithKind("Restore"))
			err = s.Print(cmd.OutOrStdout(), done, func(p Printer) { writeRevert(p, spec, status) })
			return errors.Join(err, notReverted(status))
		},
	}
	s.Flags(cmd)
	f := cmd.Flags()
	f.StringVar(&to, "to", "", "the time or version to go back to")
	_ = cmd.MarkFlagRequired("to")
	f.BoolVar(&dryRun, "dry-run", false, "show what would become of each object, and change nothing")
	f.BoolVarP(&yes, "yes", "y", false, "do not show the plan, and do not ask")
	f.BoolVar(&withStatus, "with-status", false, "bring the status back too")
	return cmd
}

// ask shows the plan and asks a person to go on.
func ask(cmd *cobra.Command, s Session, spec v1.RestoreSpec) error {
	spec.DryRun = true
	plan, err := s.Restore(cmd.Context(), spec, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if f, ok := cmd.InOrStdin().(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return errors.New("nothing was changed: without a terminal to ask on, say --dry-run for the plan, or --yes")
	}
	writeRevert(lines{cmd.ErrOrStderr()}, spec, plan)
	if plan.Created+plan.Changed+plan.Deleted == 0 {
		return errors.New("nothing was changed")
	}
	fmt.Fprint(cmd.ErrOrStderr(), "Go on? [y/N] ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(answer)); word != "y" && word != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

// lines is a Printer of questions.
type lines struct{ io.Writer }

// Line is part of Printer.
func (l lines) Line(format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = deletion.Printable(text)
		}
	}
	fmt.Fprintf(l, format+"\n", args...)
}

func notReverted(status v1.RestoreStatus) error {
	if status.Failed == 0 && status.Message == "" {
		return nil
	}
	return errors.New(strings.TrimSpace(fmt.Sprintf("%d of the objects cannot go back. %s", status.Failed, status.Message)))
}

func writeRevert(p Printer, spec v1.RestoreSpec, status v1.RestoreStatus) {
	be := " "
	if spec.DryRun {
		be = " would be "
	}
	for _, r := range status.Results {
		name := strings.ToLower(r.Kind) + "/" + r.Name
		if r.Namespace != "" {
			name = r.Namespace + " " + name
		}
		switch {
		case r.Outcome == v1.Failed:
			p.Line("%s cannot go back: %s", name, r.Reason)
		case r.Reason != "":
			p.Line("%s%s%s: %s", name, be, string(r.Outcome), r.Reason)
		default:
			p.Line("%s%s%s", name, be, string(r.Outcome))
		}
		writeChanges(p, r.Changes)
		for _, w := range r.Warnings {
			p.Line("  Warning: %s", w)
		}
	}
	p.Line("%d created, %d changed, %d deleted, %d failed", status.Created, status.Changed, status.Deleted, status.Failed)
	if !spec.DryRun && status.Before != "" && status.Created+status.Changed+status.Deleted > 0 {
		command := "exeunt revert " + deletion.Quote(spec.Object.Kind+"/"+spec.Object.Name)
		if spec.Object.Namespace != "" && status.Results[0].Namespace == spec.Object.Namespace { // not a kind without namespaces
			command += " -n " + deletion.Quote(spec.Object.Namespace)
		}
		p.Line("To undo: %s --to %s", command, status.Before)
	}
}
