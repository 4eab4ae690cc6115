package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/exeunt/exeunt/broker/mesh/agent"
	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
)

func newNode() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Join this machine to a mesh, and manage bootstrap tokens",
		Long: `Join this machine to the mesh of a project (a namespace), and manage the bootstrap
tokens with which machines enrol.

The nodes of a mesh are objects: kubectl get meshnodes. Deleting one drains the
node; the object is removed when the node has left.`,
	}
	cmd.AddCommand(newNodeJoin(), newNodeToken())
	return cmd
}

func newNodeJoin() *cobra.Command {
	var c agent.Config
	var tokenFile string
	var level slog.Level
	var o output
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Run the agent that makes this machine a node of a mesh",
		Long: `Make this machine a node of a mesh, and run until the node has left.

The bootstrap token is used once. The agent stores the node's credential in the
state directory: a later start needs no token.

When a client deletes the MeshNode, or the agent gets SIGTERM or Ctrl-C, it
accepts no more connections at --listen, runs --on-drain, waits until the relayed
connections have ended, acknowledges the drain to the server, and ends. The server
removes a node that does not finish within --drain-timeout, and records that. With
--stay the agent stops without leaving the mesh: for upgrades and reboots.

Replicas that share a database share the nodes. Name several with --server: the
agent uses another when one does not answer. One CA must have issued their
certificates.

The agent is not a data plane: a drain waits only for the connections that come in
at --listen and are relayed to --forward. --on-drain is for everything else on
this machine: its command runs in a shell, again until it succeeds.`,
		Example: `  exeunt node join --server https://10.0.0.1:6443 --ca-hash sha256:… --token exb_…
  exeunt node join --server https://10.0.0.1:6443 --server https://10.0.0.2:6443 --token-file /run/token --ca-file ca.crt
  exeunt node join --server https://api.example.com --token-file /run/token \
      --listen 10.0.0.7:7000 --forward 127.0.0.1:80 --on-drain 'systemctl stop batch'
  exeunt node join --stay        # again, after an upgrade`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Logger = slog.New(slog.NewTextHandler(screen{cmd.ErrOrStderr()}, &slog.HandlerOptions{Level: level}))
			c.Joined = func(n agent.Node) { _ = o.print(cmd.OutOrStdout(), joined(n)) } // the node works without a reader of this
			var err error
			if c.Token, err = readToken(c.Token, tokenFile); err != nil {
				return err
			}
			return agent.Run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.Servers, "server", nil, "`URL` of a server, https://HOST:PORT; repeat it for each replica (default: those that it joined)")
	f.StringVar(&c.Token, "token", "", "bootstrap token; other users of this machine can see it here: --token-file is safer")
	f.StringVar(&tokenFile, "token-file", "", "`file` that holds the bootstrap token")
	f.StringVar(&c.CAFile, "ca-file", "", "PEM `file` with the CA of the server's certificate")
	f.StringVar(&c.CAHash, "ca-hash", "", "fingerprint of that CA, as \"node token create\" prints it (default: the system's CAs)")
	f.StringVar(&c.Project, "project", "", "refuse to join any other project")
	f.StringVar(&c.Name, "name", "", "name of the node (default: the machine's, with a suffix if it is taken)")
	f.StringVar(&c.State, "state", "./node", "`directory` for credential (node.json) and peers (peers.json)")
	f.StringVar(&c.Listen, "listen", "", "`HOST:PORT` that accepts connections")
	f.StringVar(&c.Forward, "forward", "", "`HOST:PORT` to which connections are relayed")
	f.StringVar(&c.Advertise, "advertise", "", "`HOST:PORT` that peers see (default: the address of --listen)")
	f.StringVar(&c.OnDrain, "on-drain", "", "shell `command` that runs before the node acknowledges its drain; its environment has EXEUNT_NODE, EXEUNT_PROJECT and EXEUNT_DRAIN_SECONDS")
	f.DurationVar(&c.DrainTimeout, "drain-timeout", 30*time.Second, "how long the node may take to drain")
	f.BoolVar(&c.Stay, "stay", false, "stay in the mesh when the agent is stopped")
	addLogLevel(cmd, &level)
	o.addFlag(cmd, "name")
	f.Lookup("output").Usage = "`format` in which the node is printed when it has joined: json, yaml, name (default: only the log says so); json is one line"
	o.oneLine = true
	return cmd
}

// joined is the node in every form. The text is empty: the log says it.
func joined(n agent.Node) document {
	return document{
		value: n, names: []string{objectName(v1alpha1.GroupVersion.String(), "MeshNode", n.Name)},
		text: func(*printer) {},
	}
}

// readToken returns the token of the flag, or the content of its file.
func readToken(token, file string) (string, error) {
	if file == "" {
		return token, nil
	}
	if token != "" {
		return "", fmt.Errorf("--token and --token-file: one of the two is enough")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

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
	var q question
	var all bool
	cmd := ask(&q, &cobra.Command{
		Use: "list", Short: "List tokens, with their state and node", Args: cobra.NoArgs,
	}, func([]string) (r request, err error) {
		r = request{method: http.MethodGet, path: v1alpha1.TokensPath, parameters: map[string]string{}}
		if !all {
			r.parameters["project"], err = q.currentNamespace()
		}
		return r, err
	}, func(list *v1alpha1.TokenList) document { return listedTokens(list, time.Now()) }, "name")
	q.addNamespaceFlag(cmd, "project (default: the namespace of the kubeconfig)")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "tokens of all projects")
	return cmd
}

// listedTokens is the list in every form. The names are ids, for "revoke".
func listedTokens(list *v1alpha1.TokenList, now time.Time) document {
	return listed("v1", "List", list.Items, "no tokens; create one with: exeunt node token create", "ID\tPROJECT\tSTATE\tNODE\tEXPIRES\tMADE BY\tLEFT", func(t v1alpha1.Token) (string, []any) {
		expires := "-"
		if t.State == "issued" {
			expires = "in " + t.ExpiresAt.Sub(now).Round(time.Second).String()
		}
		return t.ID, []any{t.ID, t.Project, t.State, cmp.Or(t.Node, "-"), expires, cmp.Or(t.CreatedBy, "-"), cmp.Or(t.LeftHow, "-")}
	})
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
