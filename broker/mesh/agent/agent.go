// Package agent is the node's side of the mesh: what `exeunt node join` runs.
//
// It enrols once and stores its credential, sends heartbeats, writes a file
// with its peers, and leaves the mesh: when the server requests it, or when the
// agent is stopped.
//
// It is not a data plane. Its connections are those that come in at the address
// it listens on, which it relays to one target (relay.go); an agent without
// --listen has none. To drain is to accept no more connections, to run the
// operator's command, and to wait until the last connection has ended; only
// then does the agent send its acknowledgement. The operator's command covers
// everything else on the machine.
//
// Its state is in one directory, written before the agent acts on
// it, so a killed agent continues where it was. Begin with [Run].
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
)

// Config configures an agent. The zero value of a field is its default.
type Config struct {
	// Servers are the https:// URLs of servers that share a database. Default:
	// those that it joined.
	Servers []string
	// Token is the text of a bootstrap token. Only the first start needs it:
	// later the agent uses its credential.
	Token string
	// Project, if given, must be the token's project.
	Project string
	// CAFile is a PEM file with the CA of all servers' certificates; CAHash is
	// that CA's fingerprint, sha256:HEX of its public key. Without either the
	// system's CAs apply.
	CAFile, CAHash string
	// Name is the node's name. Default: the machine's, with a suffix if that is
	// taken.
	Name string
	// State is the directory for credential and peers. Default ./node.
	State string
	// Listen is where connections come in, HOST:PORT, and Forward where they are
	// relayed to. Both or neither.
	Listen, Forward string
	// Advertise is the address that peers see. Default: the listen address.
	Advertise string
	// OnDrain is a shell command that runs before the node acknowledges its
	// drain. Empty means none.
	OnDrain string
	// DrainTimeout bounds the node's drain. Default: the server's.
	DrainTimeout time.Duration
	// Stay: a stopped agent does not leave the mesh.
	Stay bool
	// Joined, if set, is called once, when the node is in the mesh.
	Joined func(Node)
	// Logger is the operator's log. Default slog.Default.
	Logger *slog.Logger
}

// Node identifies the node that an agent runs.
type Node struct {
	Project string `json:"project"`
	Name    string `json:"name"`
	UID     string `json:"uid"`
}

// ErrRemoved says that the server no longer knows the node.
var ErrRemoved = errors.New("the server does not know this node any more: it was removed from the mesh, or its credential is wrong")

// leaveTimeout bounds a leave when neither node nor server sets a timeout.
const leaveTimeout = 30 * time.Second

// Agent is a node of the mesh.
type Agent struct {
	config Config
	log    *slog.Logger
	dir    *directory
	client *client
	relay  *relay // nil means that it does not listen

	// Messages from the loops to Run. The first loop to notice sends each once.
	asked chan time.Duration // drain within this time
	gone  chan struct{}      // the server no longer knows this node
}

// Run joins the mesh and runs until the node has left. It returns nil when the
// node has left, or when the context ended and Stay is set.
func Run(ctx context.Context, c Config) error {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.State = cmp.Or(c.State, "node")
	dir, err := openDirectory(c.State)
	if err != nil {
		return err
	}
	defer dir.close()
	if len(c.Servers) == 0 && dir.state.Server != "" {
		c.Servers = strings.Split(dir.state.Server, ",")
	}
	if err := check(c); err != nil {
		return err
	}
	a := &Agent{config: c, log: c.Logger, dir: dir, asked: make(chan time.Duration, 1), gone: make(chan struct{}, 1)}
	if !dir.state.Leaving {
		if a.relay, err = listen(c, a.log); err != nil {
			return err
		}
		defer a.relay.close()
	}
	if err := a.join(ctx); err != nil {
		return err
	}
	return a.live(ctx)
}

// live runs until the node leaves.
func (a *Agent) live(ctx context.Context) error {
	// The loops outlive ctx: a leaving node still sends heartbeats.
	loops, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.loops(loops)
	}()
	defer func() {
		stop()
		<-ended
	}()
	if a.dir.state.Leaving { // it was killed while it was leaving
		return a.leave(loops, false)
	}
	select {
	case <-ctx.Done():
		if a.config.Stay {
			a.log.Info("stopped; the node stays in the mesh")
			return nil
		}
		return a.leave(loops, true)
	case left := <-a.asked:
		a.log.Info("asked to drain", "within", left)
		return a.drain(loops, left)
	case <-a.gone:
		return fmt.Errorf("%w; to enrol again, remove %s and use another token", ErrRemoved, a.dir.path(stateFile))
	}
}

// leave requests the node's own drain, if ask is set, and drains.
func (a *Agent) leave(ctx context.Context, ask bool) error {
	limit := a.config.DrainTimeout
	if limit <= 0 {
		limit = leaveTimeout
	}
	a.log.Info("leaving the mesh", "within", limit)
	// Saved first: after a crash the next start continues to leave.
	a.dir.state.Leaving = true
	if err := a.dir.save(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := a.client.retry(bounded, a.log, "leave", func(ctx context.Context) error { return a.client.call(ctx, v1alpha1.LeavePath, nil) })
	switch {
	case refusedFor(err, v1alpha1.ReasonUnknownNode):
		return a.left("the server has removed the node already")
	case err != nil && ask:
		return fmt.Errorf("leave: the server did not get the request: %w; start the agent again to continue, or delete the MeshNode", err)
	case err != nil:
		return fmt.Errorf("leave: %w", err)
	}
	deadline, _ := bounded.Deadline()
	return a.drain(ctx, time.Until(deadline))
}

// left cleans up after the node has left.
func (a *Agent) left(how string) error {
	if err := a.dir.forget(); err != nil {
		return err
	}
	a.log.Info("left the mesh", "how", how)
	return nil
}

// check refuses an invalid configuration and names the flag.
func check(c Config) error {
	if len(c.Servers) == 0 {
		return fmt.Errorf("--server: say where the server is, https://HOST:PORT")
	}
	for _, server := range c.Servers {
		u, err := url.Parse(server)
		if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || strings.Contains(server, ",") {
			return fmt.Errorf("--server %q: want https://HOST:PORT", server)
		}
	}
	switch {
	case c.CAFile != "" && c.CAHash != "":
		return fmt.Errorf("--ca-file and --ca-hash: one of the two is enough")
	case (c.Listen == "") != (c.Forward == ""):
		return fmt.Errorf("--listen and --forward belong together: connections that come in have to go somewhere")
	case c.Advertise != "" && c.Listen == "":
		return fmt.Errorf("--advertise: there is nothing to reach without --listen")
	case c.DrainTimeout < 0 || c.DrainTimeout > time.Hour:
		return fmt.Errorf("--drain-timeout %s: want at most an hour", c.DrainTimeout)
	}
	for flag, address := range map[string]string{"--listen": c.Listen, "--forward": c.Forward, "--advertise": c.Advertise} {
		if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
			return fmt.Errorf("%s %q: want HOST:PORT", flag, address)
		}
	}
	return nil
}

var notInLabels = regexp.MustCompile(`[^a-z0-9-]+`)

// machineName is the host name as a DNS label.
func machineName() string {
	name, err := os.Hostname()
	if err != nil {
		return "node"
	}
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	return label(name)
}

func label(name string) string {
	name = notInLabels.ReplaceAllString(name, "-")
	name = strings.Trim(name[:min(len(name), 50)], "-")
	if name == "" {
		return "node"
	}
	return name
}
