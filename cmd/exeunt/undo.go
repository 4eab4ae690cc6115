package main

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	about "github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/rest"
)

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
		if c.Spec.RequestedBy != me.Status.UserInfo.Username || c.Status.Remaining == 0 && c.Status.Restored >= c.Status.Removed {
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
