package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/exeunt/exeunt/broker/mesh/agent"
	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
)

func newNodeToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke bootstrap tokens",
		Long: `Create, list and revoke bootstrap tokens.

With a token one node enrols in one project, once. An unused token expires. Its
text is shown only when it is created: the server stores a hash.`,
	}
	cmd.AddCommand(newTokenCreate(), newTokenList(), newTokenRevoke())
	return cmd
}

func newTokenCreate() *cobra.Command {
	var t target
	var ttl time.Duration
	var o output
	cmd := &cobra.Command{
		Use: "create", Short: "Create a token, and print the command that uses it", Args: cobra.NoArgs,
		Example: `  exeunt node token create -n shop --ttl 30m
  exeunt node token create -n shop | ssh machine sh`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			project, err := t.currentNamespace()
			if err != nil {
				return err
			}
			wanted := v1alpha1.TokenRequest{Project: project, TTLSeconds: int64(ttl / time.Second)}
			var made v1alpha1.Token
			if err := t.do(cmd.Context(), request{method: http.MethodPost, path: v1alpha1.TokensPath, body: wanted}, &made); err != nil {
				return err
			}
			return t.printToken(cmd.OutOrStdout(), cmd.ErrOrStderr(), made, &o)
		},
	}
	t.addFlags(cmd)
	cmd.Flags().Lookup("namespace").Usage = "project that the node will join (default: the namespace of the kubeconfig)"
	cmd.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long the token can be used: 5m to 24h")
	o.addFlag(cmd)
	return cmd
}

// printToken prints the command for the machine to out, and nothing else, so that
// it can be piped. The explanation goes to notes (stderr).
func (t *target) printToken(out, notes io.Writer, made v1alpha1.Token, o *output) error {
	if o.format != "" {
		return o.print(out, document{value: made})
	}
	config, err := t.restConfig()
	if err != nil {
		return err
	}
	_ = writef(notes, "With token %s one node can join project %s until %s. On that machine run:\n",
		made.ID, made.Project, made.ExpiresAt.Local().Format(time.DateTime))
	_, err = fmt.Fprintf(out, "exeunt node join --server %s%s --token %s\n", config.Host, authorityFlag(config), made.Text)
	return err
}

// authorityFlag returns the flag with which a node trusts the CA of a kubeconfig;
// empty if the kubeconfig has none and the system's CAs apply.
func authorityFlag(config *rest.Config) string {
	authorities, err := cert.ParseCertsPEM(authorityOf(config))
	if err != nil {
		return ""
	}
	return " --ca-hash " + agent.Fingerprint(authorities[0])
}

func newTokenList() *cobra.Command {
	var t target
	var o output
	var all bool
	cmd := &cobra.Command{
		Use: "list", Short: "List tokens, with their state and node", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ask := request{method: http.MethodGet, path: v1alpha1.TokensPath}
			if !all {
				project, err := t.currentNamespace()
				if err != nil {
					return err
				}
				ask.parameters = map[string]string{"project": project}
			}
			var list v1alpha1.TokenList
			if err := t.do(cmd.Context(), ask, &list); err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), listedTokens(list))
		},
	}
	t.addFlags(cmd)
	cmd.Flags().Lookup("namespace").Usage = "project (default: the namespace of the kubeconfig)"
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "tokens of all projects")
	o.addFlag(cmd, "name")
	return cmd
}

// listedTokens is the list in every form. The names are ids, for "revoke".
func listedTokens(list v1alpha1.TokenList) document {
	d := document{value: list, text: func(p *printer) { printTokens(p, list, time.Now()) }}
	for _, t := range list.Items {
		d.names = append(d.names, t.ID)
	}
	return d
}

func printTokens(p *printer, list v1alpha1.TokenList, now time.Time) {
	if len(list.Items) == 0 {
		p.line("no tokens; create one with: exeunt node token create")
		return
	}
	rows := [][]any{{"ID", "PROJECT", "STATE", "NODE", "EXPIRES", "MADE BY", "LEFT"}}
	for _, t := range list.Items {
		expires := "-"
		if t.State == "issued" {
			expires = "in " + t.ExpiresAt.Sub(now).Round(time.Second).String()
		}
		rows = append(rows, []any{t.ID, t.Project, t.State, cmp.Or(t.Node, "-"), expires, cmp.Or(t.CreatedBy, "-"), cmp.Or(t.LeftHow, "-")})
	}
	p.table(3, rows)
}

func newTokenRevoke() *cobra.Command {
	var t target
	var o output
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "Revoke an unused token", Args: exactly(1, `ID, as "exeunt node token list" shows it`),
		Long: `Revoke an unused token. The id is the part of the token between the underscores.
A used token cannot be revoked: to remove its node, delete the MeshNode.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var now v1alpha1.Token
			if err := t.do(cmd.Context(), request{method: http.MethodDelete, path: v1alpha1.TokensPath + "/" + args[0]}, &now); err != nil {
				return err
			}
			if now.State == "consumed" {
				return fmt.Errorf("node %s has enrolled by the token; to drain it: kubectl delete meshnode %s -n %s", now.Node, now.Node, now.Project)
			}
			return o.print(cmd.OutOrStdout(), document{value: now, names: []string{now.ID}, text: func(p *printer) {
				p.line("token %s is %s", now.ID, now.State)
			}})
		},
	}
	cmd.ValidArgsFunction = t.completeTokens
	t.addServerFlags(cmd) // no namespace: ids are unique
	o.addFlag(cmd, "name")
	return cmd
}
