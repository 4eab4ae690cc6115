package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
