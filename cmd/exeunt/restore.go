package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

func newRestore() *cobra.Command {
	var t target
	var spec v1.RestoreSpec
	var o output
	cmd := &cobra.Command{
		Use:   "restore KIND/NAME... | --cascade ID | --uid UID",
		Short: "Restore deleted objects",
		Long: `Restore deleted objects: the newest removed object of a name, the object with a
uid, or everything that one cascade removed, owners before dependents. Objects that
a controller created during the cascade are skipped: those from before are
restored.

Without --with-cascade only the object itself is restored, so a namespace is empty;
the command says how many objects the same cascade removed. --with-cascade restores
them too: the content of a namespace, the objects of a CustomResourceDefinition,
the dependents of an owner.

If the deletion of an object waits for confirmation (serve --max-cascade), the
object still exists: the command calls the deletion off.

Nothing is overwritten: an object whose name is taken is skipped, and the content
of a namespace is restored into the namespace if it exists again. A restored object
is as it was when its deletion was asked for, with its uid and its references; a line
says what differs. After an interruption run the same command again. See "exeunt
archive list".`,
		Example: `  exeunt restore configmap/settings -n shop
  exeunt restore namespace/shop --with-cascade
  exeunt restore --cascade 5f1f4c1e-… --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			specs, err := restoreSpecs(&t, spec, args)
			if err != nil {
				return err
			}
			if err := o.check(); err != nil {
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
	failed := 0
	for _, spec := range specs {
		status, err := restore(cmd.Context(), client, spec)
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		results = append(results, restored(spec, status, cmd.ErrOrStderr()))
		failed += status.Failed
	}
	if failed > 0 {
		problems = errors.Join(problems, fmt.Errorf("%s not restored; the lines above say why", counted(failed, "object")))
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

// restore sends the request until the server has processed all objects. Each round
// repeats the results of the rounds before and replaces them, except for objects
// that an earlier round created.
func restore(ctx context.Context, client rest.Interface, spec v1.RestoreSpec) (v1.RestoreStatus, error) {
	created := map[types.UID]bool{}
	for {
		request := v1.Restore{Spec: spec}
		request.APIVersion, request.Kind = v1.GroupVersion.String(), "Restore"
		body, err := json.Marshal(request)
		if err != nil {
			return v1.RestoreStatus{}, err
		}
		var reply v1.Restore
		ask := client.Post().AbsPath(archivePath+"/restores").SetHeader("Content-Type", "application/json").
			WarningHandler(rest.NoWarnings{}) // the status says the same, and is printed
		err = answer(ask.Body(body).Do(ctx), &reply)
		if err != nil {
			return v1.RestoreStatus{}, fmt.Errorf("restore: %w", err)
		}
		status, progress := reply.Status, 0
		for i := range status.Results {
			r := &status.Results[i]
			switch {
			case r.Outcome == v1.Created:
				created[r.UID] = true
				progress++
			case created[r.UID] && r.Outcome == v1.Skipped:
				r.Outcome, r.Reason = v1.Created, ""
				status.Created, status.Skipped = status.Created+1, status.Skipped-1
			}
		}
		if status.Complete {
			return status, nil
		}
		if progress == 0 || spec.DryRun {
			return status, errors.New("restore: the server ran out of time; part of the cascade is not restored: run the command again")
		}
	}
}

func writeRestore(out, warnings io.Writer, spec v1.RestoreSpec, status v1.RestoreStatus) error {
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
		if err := writef(out, "%s\n", line); err != nil {
			return err
		}
		for _, c := range r.Changes {
			writef(warnings, "Warning: %s/%s: %s\n", strings.ToLower(r.Kind), r.Name, c.String())
		}
		for _, w := range r.Warnings {
			writef(warnings, "Warning: %s/%s: %s\n", strings.ToLower(r.Kind), r.Name, w)
		}
	}
	if status.CalledOff > 0 {
		_, err := fmt.Fprintf(out, "It was not gone yet: its deletion waited to be confirmed. It is ACTIVE again%s.\n", suffix)
		return err
	}
	if _, err := fmt.Fprintf(out, "%d created, %d skipped, %d failed%s\n", status.Created, status.Skipped, status.Failed, suffix); err != nil {
		return err
	}
	if err := writeConflicts(out, status); err != nil || status.LeftBehind == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "%s left with it and still in the archive: exeunt restore --cascade %s, or the same command with --with-cascade\n",
		counted(status.LeftBehind, "object"), status.Cascade)
	return err
}

// writeConflicts lists the objects that were skipped because their name is taken.
func writeConflicts(out io.Writer, status v1.RestoreStatus) error {
	if status.Conflicts == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(out, "%s, nothing was overwritten:\n", counted(status.Conflicts, "conflict")); err != nil {
		return err
	}
	for _, r := range status.Results {
		if r.ConflictsWith == "" {
			continue
		}
		line := fmt.Sprintf("  %s/%s (uid %s) is there; the archive has uid %s", strings.ToLower(r.Kind), r.Name, r.ConflictsWith, r.UID)
		if err := writef(out, "%s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// restored is the answer in every format. The names are those of the objects that
// exist again.
func restored(spec v1.RestoreSpec, status v1.RestoreStatus, warnings io.Writer) document {
	r := &v1.Restore{Spec: spec, Status: status}
	r.APIVersion, r.Kind = v1.GroupVersion.String(), "Restore"
	d := document{value: r, text: func(w io.Writer) error { return writeRestore(w, warnings, spec, status) }}
	for _, result := range status.Results {
		if result.Outcome == v1.Created || result.Outcome == v1.CalledOff {
			d.names = append(d.names, objectName(result.APIVersion, result.Kind, result.Name))
		}
	}
	return d
}
