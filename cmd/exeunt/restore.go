package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/rest"

	about "github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/internal/task"
)

func newRestore() *cobra.Command {
	var t target
	var spec v1.RestoreSpec
	var from fromBackup
	var o output
	cmd := &cobra.Command{
		Use:   "restore KIND/NAME... | --cascade ID | --uid UID | --from BACKUPS [KIND/NAME...]",
		Short: "Restore deleted objects",
		Long: `Restore deleted objects: the newest removed object of a name, the object with a
uid, or everything that one cascade removed, owners before dependents. Objects that
a controller created during the cascade are skipped: those from before are
restored.

Without --with-cascade only the object itself is restored, so a namespace is empty;
the command says how many objects the same cascade removed. --with-cascade restores
them too: the content of a namespace, the objects of a CustomResourceDefinition,
the dependents of an owner.

A deletion that is still under way is called back: what is gone returns, what has not
been touched stays, and what is being deleted, which cannot be stopped, returns as
soon as it is gone. The command waits for that. If the deletion of an object waits
for confirmation (serve --max-cascade), it is called off.

Nothing is overwritten: an object whose name is taken is skipped, and the content
of a namespace is restored into the namespace if it exists again. A restored object
is as it was when its deletion was asked for, with its uid and its references; a line
says what differs. The command fails, also as a dry run, if anything that was asked for
does not return. The server goes on when the command is stopped.

--from takes objects from a backup, also after they have left the archive: those that are
named, or all of a namespace with itself. They return by the same rules; of an object that
exists a line says what differs from the backup. It needs the right to create
archivedobjects. See "exeunt archive list",
"exeunt undo" and "kubectl get restores".`,
		Example: `  exeunt restore configmap/settings -n shop
  exeunt restore namespace/shop --with-cascade
  exeunt restore --cascade 5f1f4c1e-… --dry-run
  exeunt restore --from /srv/backup -n shop --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var specs []v1.RestoreSpec
			var err error
			if from.location != "" {
				spec, err = from.spec(cmd, &t, spec, args)
				specs = []v1.RestoreSpec{spec}
			} else {
				specs, err = restoreSpecs(&t, spec, args)
			}
			if err != nil {
				return err
			}
			client, err := t.connect()
			if err != nil {
				return err
			}
			return restoreEach(cmd, client, specs, &o)
		},
	}
	t.addFlags(cmd)
	from.addFlags(cmd)
	cmd.ValidArgsFunction = t.completeArchived
	f := cmd.Flags()
	f.StringVar(&spec.Cascade, "cascade", "", "restore everything that this cascade removed")
	complete(cmd, "cascade", t.completeCascades)
	f.StringVar((*string)(&spec.UID), "uid", "", "restore the object that had this uid")
	f.BoolVar(&spec.WithCascade, "with-cascade", false, "also restore everything that the same cascade removed")
	f.BoolVar(&spec.DryRun, "dry-run", false, "show what would be restored, and restore nothing")
	f.BoolVar(&spec.KeepTokens, "keep-tokens", false, "restore the tokens of users too, which their deletion revoked: they are valid again")
	o.addFlag(cmd, "name")
	return cmd
}

// restoreEach restores one object after the other, and prints all results. It
// continues after a failure.
func restoreEach(cmd *cobra.Command, client rest.Interface, specs []v1.RestoreSpec, o *output) error {
	var results []document
	var problems error
	missing := 0
	for _, spec := range specs {
		status, err := restore(cmd.Context(), client, spec, cmd.ErrOrStderr())
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		results = append(results, restored(spec, status, cmd.ErrOrStderr()))
		if !status.Complete && (!spec.DryRun || status.Failed+status.Conflicts > 0) {
			missing += max(1, status.Failed+status.Conflicts)
		}
		if status.Phase == v1.Incomplete && status.Message != "" {
			problems = errors.Join(problems, errors.New(status.Message))
		}
	}
	if missing > 0 {
		problems = errors.Join(problems, fmt.Errorf("%s not restored; the lines above say why", counted(missing, "object")))
	}
	if len(results) == 0 {
		return problems
	}
	return errors.Join(o.printAll(cmd.OutOrStdout(), results), problems)
}

// restoreSpecs returns a request for each object that the arguments and flags name.
func restoreSpecs(t *target, spec v1.RestoreSpec, args []string) ([]v1.RestoreSpec, error) {
	if spec.Cascade != "" && spec.WithCascade {
		return nil, errors.New("--cascade restores all of the cascade: leave out --with-cascade")
	}
	if len(args) == 0 {
		if (spec.Cascade == "") == (spec.UID == "") {
			return nil, errors.New("say what to restore: KIND/NAME, --cascade ID or --uid UID")
		}
		return []v1.RestoreSpec{spec}, nil
	}
	subjects, err := parseSubjects(args)
	if err != nil {
		return nil, err
	}
	if spec.Cascade != "" || spec.UID != "" {
		return nil, errors.New("either KIND/NAME or --cascade or --uid")
	}
	namespace, err := t.currentNamespace()
	if err != nil {
		return nil, err
	}
	var out []v1.RestoreSpec
	for _, s := range subjects {
		kind, apiVersion := s.groupKind()
		spec.Object = &v1.ObjectName{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: s.name}
		out = append(out, spec)
	}
	return out, nil
}

// restore sends the request and waits until the server has ended it. The server goes on if this
// program is stopped.
func restore(ctx context.Context, client rest.Interface, spec v1.RestoreSpec, notes io.Writer) (v1.RestoreStatus, error) {
	var reply v1.Restore
	// The status says the same as the warnings, and is printed.
	create := request{method: http.MethodPost, path: archivePath + "/restores", body: restoreOf(spec), warnings: rest.NoWarnings{}}
	if err := send(ctx, client, create, &reply); err != nil {
		return v1.RestoreStatus{}, fmt.Errorf("restore: %w", err)
	}
	said := ""
	for pause := 50 * time.Millisecond; !spec.DryRun && !reply.Status.Phase.Ended(); pause = min(2*pause, time.Second) {
		if note := reply.Status.Message; note != said {
			said = note
			_ = writef(notes, "%s restored so far; %s. Waiting; the server goes on if you stop this command (to end it: kubectl delete restore %s)\n",
				counted(reply.Status.Created, "object"), note, reply.Name)
		}
		if !task.Sleep(ctx, pause) {
			return reply.Status, ctx.Err()
		}
		name := reply.Name
		reply = v1.Restore{}
		if err := send(ctx, client, request{method: http.MethodGet, path: archivePath + "/restores/" + name}, &reply); err != nil {
			return v1.RestoreStatus{}, fmt.Errorf("restore %s: %w", name, err)
		}
	}
	return reply.Status, nil
}

func restoreOf(spec v1.RestoreSpec) *v1.Restore {
	r := &v1.Restore{Spec: spec}
	r.SetGroupVersionKind(v1.GroupVersion.WithKind("Restore"))
	return r
}

func writeRestore(p *printer, warnings io.Writer, spec v1.RestoreSpec, status v1.RestoreStatus) {
	suffix := ""
	if spec.DryRun {
		suffix = " (dry run)"
	}
	for _, r := range status.Results {
		line := fmt.Sprintf("%s/%s %s%s", strings.ToLower(r.Kind), r.Name, r.Outcome, suffix)
		if r.Namespace != "" {
			line = r.Namespace + " " + line
		}
		if r.Reason != "" {
			line += ": " + r.Reason
		}
		if r.Relinked > 0 {
			line += fmt.Sprintf("; %s restored before it: the owner reference is back", counted(r.Relinked, "object"))
		}
		p.line("%s", line)
		for _, c := range r.Changes {
			_ = writef(warnings, "Warning: %s/%s: %s\n", strings.ToLower(r.Kind), r.Name, c.String())
		}
		for _, w := range r.Warnings {
			_ = writef(warnings, "Warning: %s/%s: %s\n", strings.ToLower(r.Kind), r.Name, w)
		}
	}
	if status.CalledOff > 0 && status.CalledOff == len(status.Results) {
		p.line("It was not gone yet: its deletion waited to be confirmed. It is ACTIVE again%s.", suffix)
		return
	}
	listed := slices.DeleteFunc(slices.Clone(status.Results), func(r v1.RestoreResult) bool { return r.Outcome != v1.Created })
	if more := status.Created - len(listed); more > 0 {
		p.line("and %d more created%s", more, suffix)
	}
	waiting := ""
	if status.Waiting > 0 {
		waiting = fmt.Sprintf(", %d awaited", status.Waiting)
	}
	p.line("%d created, %d skipped, %d failed%s%s", status.Created, status.Skipped, status.Failed, waiting, suffix)
	writeConflicts(p, status)
	if status.LeftBehind > 0 {
		p.line("%s left with it and still in the archive: exeunt restore --cascade %s, or the same command with --with-cascade",
			counted(status.LeftBehind, "object"), status.Cascade)
	}
}

// writeConflicts lists the objects that were skipped because their name is taken.
func writeConflicts(p *printer, status v1.RestoreStatus) {
	if status.Conflicts == 0 {
		return
	}
	p.line("%s, nothing was overwritten:", counted(status.Conflicts, "conflict"))
	for _, r := range status.Results {
		if r.ConflictsWith != "" {
			p.line("  %s/%s (uid %s) is there; the archive has uid %s", strings.ToLower(r.Kind), r.Name, r.ConflictsWith, r.UID)
		}
	}
}

// restored is the answer in every format. The names are those of the objects that
// exist again.
func restored(spec v1.RestoreSpec, status v1.RestoreStatus, warnings io.Writer) document {
	r := restoreOf(spec)
	r.Status = status
	d := document{value: r, text: func(p *printer) { writeRestore(p, warnings, spec, status) }}
	for _, result := range status.Results {
		if result.Outcome == v1.Created || result.Outcome == v1.CalledOff {
			d.names = append(d.names, objectName(result.APIVersion, result.Kind, result.Name))
		}
	}
	return d
}

func newUndo() *cobra.Command {
	var t target
	var o output
	var everywhere, dryRun bool
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "Call back your last deletion",
		Long: `Call back your last deletion in the namespace: everything that it has removed
returns, and what it has not reached stays. What is being deleted and cannot be
stopped returns as soon as it is gone; the command waits for that. It is "exeunt
restore --cascade" for the newest cascade that you began and that is not restored
yet. The deletion of a namespace counts as one in that namespace.`,
		Example: `  exeunt undo -n shop
  exeunt undo --all-namespaces --dry-run`,
		Args: exactly(0, "it undoes the last deletion; for another one see: exeunt restore --help"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := t.connect()
			if err != nil {
				return err
			}
			namespace := ""
			if !everywhere {
				if namespace, err = t.currentNamespace(); err != nil {
					return err
				}
			}
			last, err := lastCascade(cmd, client, namespace)
			if err != nil {
				return err
			}
			root := last.Spec.Root
			_ = writef(cmd.ErrOrStderr(), "Undoing the deletion of %s %s, %s ago\n", root.Kind, about.Printable(root.Name), duration.HumanDuration(time.Since(last.Spec.StartedAt.Time)))
			return restoreEach(cmd, client, []v1.RestoreSpec{{Cascade: last.Name, DryRun: dryRun}}, &o)
		},
	}
	t.addFlags(cmd)
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "the last deletion in any namespace, or outside of namespaces")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be restored, and restore nothing")
	o.addFlag(cmd, "name")
	return cmd
}

// lastCascade finds the newest cascade that this client began and that is not restored.
func lastCascade(cmd *cobra.Command, client rest.Interface, namespace string) (last *v1.Cascade, err error) {
	var me authenticationv1.SelfSubjectReview
	me.SetGroupVersionKind(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"))
	who := request{method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", body: me}
	if err := send(cmd.Context(), client, who, &me); err != nil {
		return nil, fmt.Errorf("ask who this client is: %w", err)
	}
	path := archivePath + "/cascades"
	if namespace != "" {
		path = archivePath + "/namespaces/" + namespace + "/cascades"
	}
	var list v1.CascadeList
	if err := send(cmd.Context(), client, request{method: http.MethodGet, path: path}, &list); err != nil {
		return nil, fmt.Errorf("read the last deletions: %w", err)
	}
	for i := range list.Items {
		c := &list.Items[i]
		fromBackup := strings.HasPrefix(c.Name, adopted) // no deletion
		if fromBackup || c.Spec.RequestedBy != me.Status.UserInfo.Username || c.Status.Remaining == 0 && c.Status.Restored >= c.Status.Removed {
			continue
		}
		if last == nil || c.Spec.StartedAt.After(last.Spec.StartedAt.Time) {
			last = c
		}
	}
	switch {
	case last != nil:
		return last, nil
	case namespace != "":
		return nil, fmt.Errorf("%s has no deletion in namespace %s that could be undone; in other places: --all-namespaces", me.Status.UserInfo.Username, namespace)
	}
	return nil, errors.New("you have no deletion that could be undone")
}
