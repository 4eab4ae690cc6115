package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	about "github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
)

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
