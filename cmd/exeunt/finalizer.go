package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	forcev1 "github.com/exeunt/exeunt/force/v1"
	foresightv1 "github.com/exeunt/exeunt/foresight/v1"
)

func newFinalizer() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "finalizer",
		Short: "Override a finalizer that nobody removes",
	}
	cmd.AddCommand(newFinalizerRemove())
	return cmd
}

func newFinalizerRemove() *cobra.Command {
	var t target
	var spec forcev1.FinalizerRemovalSpec
	var o output
	var uid string
	cmd := &cobra.Command{
		Use:   "remove KIND/NAME FINALIZER --reason TEXT",
		Short: "Remove somebody else's finalizer from an object that is being deleted",
		Long: `Remove somebody else's finalizer from an object that is being deleted, because
whoever should do it never will. What they would have cleaned up stays. If
nothing else holds the object, it is gone.

The reason is recorded with your name in an Event about the object, which
outlives it, and in the server's log. See "exeunt why" for what holds an object.`,
		Example: `  exeunt finalizer remove configmap/web-state backup.example.com/snapshot -n shop \
    --reason "the backup operator was uninstalled"`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if strings.TrimSpace(spec.Reason) == "" {
				return errors.New("--reason: say why; it is kept with the object's events")
			}
			c, err := t.open()
			if err != nil {
				return err
			}
			if spec.Object, err = c.resolveAnyway(args[0]); err != nil {
				return err
			}
			spec.Object.UID, spec.Finalizer = types.UID(uid), args[1]
			return removeFinalizer(cmd.Context(), c, spec, &o, cmd.OutOrStdout())
		},
	}
	t.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&spec.Reason, "reason", "", "why, in words; required")
	f.StringVar(&uid, "uid", "", "only if the object has this uid")
	f.BoolVar(&spec.DryRun, "dry-run", false, "say what would become of the object and change nothing")
	o.addFlag(cmd, "name")
	return cmd
}

func removeFinalizer(ctx context.Context, c *client, spec forcev1.FinalizerRemovalSpec, o *output, w io.Writer) error {
	r := &forcev1.FinalizerRemoval{Spec: spec}
	r.SetGroupVersionKind(forcev1.GroupVersion.WithKind("FinalizerRemoval"))
	if err := c.ask(ctx, "finalizerremovals", r); err != nil {
		return err
	}
	about := r.Status.Object
	return o.print(w, document{value: r, names: []string{objectName(about.APIVersion, about.Kind, about.Name)}, text: func(w io.Writer) error {
		_, err := io.WriteString(w, removalText(r))
		return err
	}})
}

func removalText(r *forcev1.FinalizerRemoval) string {
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
	return fmt.Sprintf("%s: finalizer %s removed; %s%s\n", named(r.Status.Object), r.Spec.Finalizer, became, suffix)
}

// resolveAnyway resolves KIND/NAME also where the server does not serve the
// kind, because its definition is broken: then PLURAL.GROUP/NAME names it.
func (c *client) resolveAnyway(argument string) (foresightv1.ObjectReference, error) {
	ref, err := c.resolve(argument)
	kind, name, ok := strings.Cut(argument, "/")
	plural, group, grouped := strings.Cut(kind, ".")
	if err == nil || !ok || !grouped || name == "" || !errors.As(err, new(noKindError)) {
		return ref, err
	}
	return foresightv1.ObjectReference{APIVersion: group, Kind: plural, Namespace: c.namespace, Name: name}, nil
}
