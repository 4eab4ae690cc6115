// Package expire has the commands about policies of expiry. It asks a server through a Session and knows neither flags of
// connections nor formats of output.
package expire

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/cmd/exeunt/past"
	"github.com/exeunt/exeunt/lifecycle"
)

// Session is a command's connection and its output.
type Session interface {
	past.Session
	// Put sends a body: with POST, or with PATCH as a merge patch.
	Put(ctx context.Context, method, path string, body, into any) error
}

// New returns the command. Each of its commands has a session of its own.
func New(session func() Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "expiry",
		Short: "Start policies by which objects expire",
		Long: `Start ExpiryPolicies and ClusterExpiryPolicies, by which the server deletes objects. A policy
is named by its name, or as clusterexpirypolicy/NAME.`,
	}
	cmd.AddCommand(newStart(session()))
	return cmd
}

// find returns the path of a policy.
func find(s Session, name string) (string, error) {
	if !strings.Contains(name, "/") {
		name = "expirypolicy/" + name
	}
	return s.Find([]string{name})
}

func newStart(s Session) *cobra.Command {
	var objects int64
	cmd := &cobra.Command{
		Use:   "start POLICY",
		Short: "Let a policy take what it selects",
		Long: `Let a policy take what it selects, as its spec is now: it sets the annotation
lifecycle.exeunt.dev/start-expiry to the generation of the policy. When the spec changes, the policy
observes again, until it is started again. That needs the right to patch the policy, the verb
confirm-cascade on it, and list and delete on its resources.

A policy takes no more objects in a day (UTC) than its spec.confirmAbove says; then its state is
Waiting. --objects lets it take more.`,
		Example: `  exeunt expiry start old-previews -n shop
  exeunt expiry start clusterexpirypolicy/finished-jobs --objects 5000`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := find(s, args[0])
			if err != nil {
				return err
			}
			var policy metav1.PartialObjectMetadata
			if err := s.Send(cmd.Context(), http.MethodGet, path, nil, &policy); err != nil {
				return err
			}
			value := fmt.Sprint(policy.Generation)
			if objects > 0 {
				value += fmt.Sprint("/", objects)
			}
			patch := map[string]any{"metadata": map[string]any{
				"resourceVersion": policy.ResourceVersion, "annotations": map[string]any{lifecycle.StartExpiry: value},
			}}
			if err := s.Put(cmd.Context(), http.MethodPatch, path, patch, &policy); err != nil {
				return fmt.Errorf("start %s: %w", policy.Name, err)
			}
			return s.Print(cmd.OutOrStdout(), policy, func(p past.Printer) { p.Line("%s is started at generation %d", policy.Name, policy.Generation) })
		},
	}
	s.Flags(cmd)
	cmd.Flags().Int64Var(&objects, "objects", 0, "how many objects it may take in a day, instead of what its spec says")
	return cmd
}
