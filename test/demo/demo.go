// Package demo is one deletion, end to end: a shop (examples/shop) is deleted,
// regretted, brought back, and deleted for good, on a real server with real
// commands and real agents, and the story is told as it happens. `make demo`
// shows it to people; the test of this package checks every claim that it makes.
//
// What is played: the controllers (test/controllers), which make pods that run
// nothing, and the cloud (test/crossplane), whose machines are agents on this
// machine. Nothing else is.
//
// Begin with Run; set.go is the first act, act.go has the others.
package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	namespace = "shop"
	// patience bounds every wait. A healthy server needs little of it.
	patience = 60 * time.Second
)

// Config is what a demo needs. All of it has to be set but Database.
type Config struct {
	Exeunt, Kubectl string // the programs
	Examples        string // directory with definition.yaml, blueprint.yaml, shop.yaml
	Dir             string // an empty directory for everything that is written
	Database        string // what --database takes. Default: SQLite in Dir
	Out             io.Writer

	// Keep leaves the server running after the story, until the context ends.
	Keep bool
	// Scene, if set, is called after each act with its name and the kubeconfig.
	Scene func(ctx context.Context, act, kubeconfig string) error

	// Pace is how long the demo pauses for its readers. Default: no pause.
	Pace time.Duration
}

// Record is what happened, for those who check it.
type Record struct {
	Events []Event // all, in order

	Preview  []Item // what the preview listed
	Why      string // what `exeunt why` said in the middle
	Asked    int64  // the revision before the first deletion
	Archived []Item // what went in its cascade

	Before, After, Settled map[string]string // the objects, before they went, restored, and with the controllers back
	Restored               int64             // the revision before they came back
	Again                  int64             // the revision before the second deletion

	Registry          string  // HOST:PORT, where it was
	Content           Content // of the repository
	Full, Kept, Empty Disk    // before, after the first deletion, after the last
}

// Content is what the server says is in a repository.
type Content struct {
	Tags      int   `json:"tags"`
	Manifests int   `json:"manifests"`
	Size      int64 `json:"size"`
}

// Run tells the story. It ends everything that it has started, and returns what
// was recorded, also of a story that broke off.
func Run(ctx context.Context, c Config) (*Record, error) {
	t := newTeller(c.Out)
	s, playing, err := openStage(ctx, c, t)
	if err != nil {
		return nil, err
	}
	p := &play{stage: s, record: &Record{Registry: s.registry}, curtain: make(chan struct{})}
	err = p.acts(playing)
	if err == nil && c.Keep {
		err = p.keep(playing)
	}
	if p.recorder != nil {
		p.record.Events = p.recorder.all()
	}
	if failed := s.close(); failed != nil {
		err = failed // it is why the story broke off
	}
	return p.record, err
}

// acts tells the story, act by act.
func (p *play) acts(ctx context.Context) error {
	for _, act := range []struct {
		name string
		run  func(context.Context) error
	}{{"set", p.set}, {"foresee", p.foresee}, {"leave", p.leave}, {"regret", p.regret}, {"forGood", p.forGood}} {
		if err := act.run(ctx); err != nil {
			return err
		}
		if act.name == "set" {
			if err := p.invite(ctx); err != nil {
				return err
			}
		}
		if p.Scene != nil {
			if err := p.Scene(ctx, act.name, p.kubeconfig); err != nil {
				return fmt.Errorf("scene after %s: %w", act.name, err)
			}
		}
	}
	return nil
}

// invite tells where the story can be watched.
func (p *play) invite(ctx context.Context) error {
	link, err := p.quiet(ctx, "exeunt console")
	if err != nil {
		return err
	}
	p.line("watch it in a browser; the link works once, within a minute: %s", strings.TrimSpace(link))
	return nil
}

// keep leaves the server running until the context ends.
func (p *play) keep(ctx context.Context) error {
	p.section("The server keeps running", "Ctrl-C ends it. To look around:", "", "  export KUBECONFIG="+p.kubeconfig)
	if err := p.invite(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// play is the state of the story between its acts.
type play struct {
	*stage
	recorder *recorder
	record   *Record

	images   map[string]v1.Image
	customer net.Conn
	curtain  chan struct{} // closed when pods may end
	dismiss  []func()      // end the controllers
}
