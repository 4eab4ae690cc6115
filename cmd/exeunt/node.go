package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/mesh/agent"
	"github.com/exeunt/exeunt/mesh/v1alpha1"
)

func newNode() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Join this machine to a mesh, and make the tokens that let machines in",
		Long: `Join this machine to the mesh of a project, which is a namespace, and make the
tokens that let machines in.

The nodes of a mesh are objects: kubectl get meshnodes. Deleting one drains the
node, and the object goes when the node has left.`,
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
		Short: "Make this machine a node, and stay until it has left",
		Long: `Make this machine a node of a mesh, and stay until it has left.

The bootstrap token is used once. The credential that the node gets is kept in
the state directory: started again, the node is back without a token.

When the node is asked to drain (its MeshNode is deleted), or told to stop
(SIGTERM, Ctrl-C), it takes no more connections at --listen, runs --on-drain,
waits until the connections that it relays have ended, tells the server, and
ends. A node that does not finish within --drain-timeout is removed by the
server all the same, and that is recorded. With --stay it ends when told to
stop without leaving the mesh: for upgrades and reboots.

Replicas that share a database know the same nodes. Name several of them, and
the node goes on with another when one does not answer; their certificates must
be of one authority.

This is no data plane: the connections that a drain waits for are those that
come in at --listen and are relayed to --forward. What else there is to finish
on this machine is for --on-drain to see to: its command runs in a shell, and
is run again until it succeeds.`,
		Example: `  exeunt node join --server https://10.0.0.1:6443 --ca-hash sha256:… --token exb_…
  exeunt node join --server https://10.0.0.1:6443 --server https://10.0.0.2:6443 --token-file /run/token --ca-file ca.crt
  exeunt node join --server https://api.example.com --token-file /run/token \
      --listen 10.0.0.7:7000 --forward 127.0.0.1:80 --on-drain 'systemctl stop batch'
  exeunt node join --stay        # again, after an upgrade`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			err := o.check()
			if err != nil {
				return err
			}
			c.Joined = func(n agent.Node) { _ = o.print(cmd.OutOrStdout(), joined(n)) } // the node works without a reader of this
			if c.Token, err = readToken(c.Token, tokenFile); err != nil {
				return err
			}
			return agent.Run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.Servers, "server", nil, "`URL` of a server, https://HOST:PORT; again for each replica that may be asked instead (default: those that it joined)")
	f.StringVar(&c.Token, "token", "", "bootstrap token; other users of this machine can see it here: --token-file is safer")
	f.StringVar(&tokenFile, "token-file", "", "`file` that holds the bootstrap token")
	f.StringVar(&c.CAFile, "ca-file", "", "PEM `file` with the authority of the server's certificate")
	f.StringVar(&c.CAHash, "ca-hash", "", "fingerprint of that authority, as token create prints it (default: the system's authorities)")
	f.StringVar(&c.Project, "project", "", "refuse to join any other project")
	f.StringVar(&c.Name, "name", "", "name of the node (default: the machine's, with a suffix if it is taken)")
	f.StringVar(&c.State, "state", "./node", "`directory` for credential (node.json) and peers (peers.json)")
	f.StringVar(&c.Listen, "listen", "", "`HOST:PORT` where connections come in")
	f.StringVar(&c.Forward, "forward", "", "`HOST:PORT` that they are relayed to")
	f.StringVar(&c.Advertise, "advertise", "", "`HOST:PORT` that peers are told (default: where it listens)")
	f.StringVar(&c.OnDrain, "on-drain", "", "`command` for the shell, run before the node says that it has drained; gets EXEUNT_NODE, EXEUNT_PROJECT and EXEUNT_DRAIN_SECONDS")
	f.DurationVar(&c.DrainTimeout, "drain-timeout", 30*time.Second, "how long the node may take to drain")
	f.BoolVar(&c.Stay, "stay", false, "when told to stop, do not leave the mesh")
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
		text: func(io.Writer) error { return nil },
	}
}

// readToken is the token itself, or what its file holds.
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
