// Package demo shows one deletion end to end: a shop (examples/shop) is deleted, restored,
// and deleted for good, on a real server with real commands and real agents, and the demo
// prints each step as it happens. `make demo` shows it to people; the test of this package
// checks every claim that it prints.
//
// Two parts are simulated: the controllers (test/controllers), whose pods run nothing, and
// the cloud (test/crossplane), whose machines are agents on this machine.
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
	// patience bounds every wait. A healthy server is much faster.
	patience = 60 * time.Second
)

// Config is what a demo needs. Every field is required, except Database, Keep, Scene and
// Pace.
type Config struct {
	Exeunt, Kubectl string // the programs
	Examples        string // directory with definition.yaml, blueprint.yaml, shop.yaml
	Dir             string // an empty directory for everything that the demo writes
	Database        string // value of --database. Default: SQLite in Dir
	Out             io.Writer

	// Keep leaves the server running after the last act, until the context ends.
	Keep bool
	// Scene, if set, is called after each act with its name and the kubeconfig.
	Scene func(ctx context.Context, act, kubeconfig string) error

	// Pace is how long the demo pauses for its readers. Default: no pause.
	Pace time.Duration
}

// Record is what happened, for the test.
type Record struct {
	Events []Event // all events, in order

	Preview  []Item // what the preview listed
	Why      string // what `exeunt why` said while the deletion was held
	Asked    int64  // the revision before the first deletion
	Archived []Item // the objects of its cascade

	Before, After, Settled map[string]string // the objects before the deletion, after the restore, and with the controllers running again
	Restored               int64             // the revision before the restore
	Again                  int64             // the revision before the second deletion

	Registry          string  // HOST:PORT of the registry
	Content           Content // of the repository
	Full, Kept, Empty Disk    // before, after the first deletion, after the last
}

// Content is what the server reports about a repository.
type Content struct {
	Tags      int   `json:"tags"`
	Manifests int   `json:"manifests"`
	Size      int64 `json:"size"`
}

// Run runs the demo. It ends every process that it has started, and returns what it
// recorded, even if the demo failed.
func Run(ctx context.Context, c Config) (*Record, error) {
	t := newPrinter(c.Out)
	s, playing, err := openStage(ctx, c, t)
	if err != nil {
		return nil, err
	}
	p := &play{stage: s, record: &Record{Registry: s.registry}, podsMayEnd: make(chan struct{})}
	err = p.acts(playing)
	if err == nil && c.Keep {
		err = p.keep(playing)
	}
	if p.recorder != nil {
		p.record.Events = p.recorder.all()
	}
	if failed := s.close(); failed != nil {
		err = failed // the failed part is the cause
	}
	return p.record, err
}

// acts runs the acts in order.
func (p *play) acts(ctx context.Context) error {
	for _, act := range []struct {
		name string
		run  func(context.Context) error
	}{{"create", p.createShop}, {"preview", p.previewShop}, {"delete", p.deleteShop}, {"restore", p.restoreShop}, {"deleteForGood", p.deleteForGood}} {
		if err := act.run(ctx); err != nil {
			return err
		}
		if act.name == "create" {
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

// invite prints where the console shows the demo.
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

// play is the state of the demo between its acts.
type play struct {
	*stage
	recorder *recorder
	record   *Record

	images         map[string]v1.Image
	customer       net.Conn
	podsMayEnd     chan struct{} // closed when the pods may end
	endControllers []func()
}
