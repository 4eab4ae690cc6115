// Package agent is the node's side of the mesh: what `exeunt node join` runs.
//
// It enrols once and keeps its credential, is heard of, keeps a file with its
// peers, and leaves: when the server asks it to, or when it is told to stop.
//
// It is no data plane. What it calls its connections are those that come in at
// the address it listens on, which it relays to one place (relay.go); an agent
// that listens nowhere has none. To drain is to take no more of them, to run a
// command of the operator's, and to wait until the last has ended; then the
// agent tells the server, and not before. Whatever else runs on the machine is
// that command's business.
//
// What it knows is in one directory (state.go), written before it is acted on:
// an agent that is killed at any moment goes on where it was. Begin with [Run].
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/exeunt/exeunt/mesh/v1alpha1"
)

// Config is what an agent needs to know. The zero value of a field is its
// default.
type Config struct {
	// Servers are the https:// URLs of servers that share a database: any of them
	// will do. Default: those that it joined.
	Servers []string
	// Token is the text of a bootstrap token. It is needed once: an agent that
	// has enrolled knows its credential.
	Token string
	// Project, if given, is the only one that the agent will join.
	Project string
	// CAFile is a PEM file with the authority that signed the certificates of all
	// servers; CAHash is that authority's fingerprint, sha256:HEX of its public
	// key. Without either the system's authorities count.
	CAFile, CAHash string
	// Name is the node's name. Default: the machine's, with a suffix if that is
	// taken.
	Name string
	// State is the directory for credential and peers. Default ./node.
	State string
	// Listen is where connections come in, HOST:PORT, and Forward where they are
	// relayed to. Both or neither.
	Listen, Forward string
	// Advertise is the address that peers are told. Default: where it listens.
	Advertise string
	// OnDrain is a command for the shell, run before the node says that it has
	// drained. Empty: none.
	OnDrain string
	// DrainTimeout is how long the node may take to drain. Default: the server's.
	DrainTimeout time.Duration
	// Stay: when the agent is told to stop it does not leave the mesh.
	Stay bool
	// Logger is for operators. Default slog.Default.
	Logger *slog.Logger
}

// ErrRemoved says that the server does not know the node any more.
var ErrRemoved = errors.New("the server does not know this node any more: it was removed from the mesh, or its credential is not the one")

// leaveTimeout bounds a leave when neither node nor server says how long.
const leaveTimeout = 30 * time.Second

// Agent is a node of the mesh.
type Agent struct {
	config Config
	log    *slog.Logger
	dir    *directory
	client *client
	relay  *relay // nil: it listens nowhere

	// What the loops tell Run. Each is sent once, by whichever loop comes first.
	asked chan time.Duration // leave, in this time
	gone  chan struct{}      // the server does not know us
}

// Run is a node's life: it joins and stays until it has left. It returns nil
// when it has left, or when the context ended and it is to stay.
func Run(ctx context.Context, c Config) error {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.State == "" {
		c.State = "node"
	}
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

// live goes on until the node leaves.
func (a *Agent) live(ctx context.Context) error {
	// The loops outlive ctx: a node that leaves is still heard of.
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
	if a.dir.state.Leaving { // it was killed on its way out
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
		return fmt.Errorf("%w; to enrol anew, remove %s and use another token", ErrRemoved, a.dir.path(stateFile))
	}
}

// leave asks the server for our own drain, if it has not been asked, and drains.
func (a *Agent) leave(ctx context.Context, ask bool) error {
	limit := a.config.DrainTimeout
	if limit <= 0 {
		limit = leaveTimeout
	}
	a.log.Info("leaving the mesh", "within", limit)
	// Noted first: killed from here on, the next start goes on leaving.
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
		return fmt.Errorf("leave: the server could not be told: %w; it will find the node unreachable; start again to go on leaving, or delete its MeshNode", err)
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
