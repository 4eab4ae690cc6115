// Package demo is one deletion, end to end: a shop (examples/shop) is deleted,
// regretted, brought back, and deleted for good, on a real server with real
// commands and real agents, and the story is told as it happens. `make demo`
// shows it to people; the test of this package checks every claim that it makes.
//
// What is played: the controllers (test/controllers), which make pods that run
// nothing, and the cloud (test/crossplane), whose machines are agents on this
// machine. Nothing else is.
//
// Begin with Run; act.go has the acts.
package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/exeunt/exeunt/test/controllers"
	"github.com/exeunt/exeunt/test/crossplane"
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

	// Pace is how long the story pauses where somebody may want to read. Default
	// not at all.
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
	for _, act := range []func(context.Context) error{p.set, p.foresee, p.leave, p.regret, p.forGood} {
		if err = act(playing); err != nil {
			break
		}
	}
	if p.recorder != nil {
		p.record.Events = p.recorder.all()
	}
	if failed := s.close(); failed != nil {
		err = failed // it is why the story broke off
	}
	return p.record, err
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

// set is the first act: everything comes on stage.
func (p *play) set(ctx context.Context) error {
	p.section("1. The stage is set", "A server in a temporary directory, controllers, and a cloud that is played.")
	if err := p.prepare(ctx); err != nil {
		return err
	}
	if err := p.cast(ctx); err != nil {
		return err
	}
	if _, err := p.command(ctx, "kubectl apply -f shop.yaml"); err != nil {
		return err
	}
	var err error
	if err = p.awaitUp(ctx); err != nil {
		return err
	}
	if p.images, err = p.push(ctx); err != nil {
		return err
	}
	if p.record.Full, err = p.disk(); err != nil {
		return err
	}
	p.line("pushed %s:%v, %d files, %s on disk", repository, tags, p.record.Full.Files, size(p.record.Full.Bytes))
	node, err := p.recorder.find(ctx, 0, "a node", func(e Event) bool { return e.Object.GetKind() == "MeshNode" && !e.Deleting() })
	if err != nil {
		return err
	}
	address := field(node.Object, "spec", "address")
	if p.customer, err = customer(ctx, address); err != nil {
		return err
	}
	p.line("a customer is connected through %s, at %s", node.Name(), address)
	if _, err = p.quiet(ctx, "kubectl wait repository/web --for=jsonpath={.status.tags}=3 --timeout=60s"); err != nil {
		return err
	}
	if err = p.ask(ctx, "kubectl get repository web -o json", &struct{ Status *Content }{&p.record.Content}); err != nil {
		return err
	}
	_, err = p.command(ctx, "kubectl get app,pods,pr,meshnodes,repositories")
	return err
}

// prepare makes the namespace, the kinds and the blueprint.
func (p *play) prepare(ctx context.Context) error {
	kinds := filepath.Join(p.Dir, "crossplane.yaml")
	if err := os.WriteFile(kinds, []byte(crossplane.Definitions()), 0o600); err != nil {
		return err
	}
	for _, line := range []string{
		"kubectl create namespace " + namespace,
		"kubectl config set-context --current --namespace " + namespace,
		"kubectl apply -f " + kinds,
	} {
		if _, err := p.quiet(ctx, line); err != nil {
			return err
		}
	}
	if _, err := p.command(ctx, "kubectl apply -f definition.yaml"); err != nil {
		return err
	}
	if _, err := p.quiet(ctx, "kubectl wait crd --all --for=condition=Established --timeout=60s"); err != nil {
		return err
	}
	_, err := p.command(ctx, "kubectl apply -f blueprint.yaml")
	return err
}

// cast starts everybody who has a part.
func (p *play) cast(ctx context.Context) (err error) {
	if p.recorder, err = record(ctx, p.stage); err != nil {
		return err
	}
	cloud, err := crossplane.Start(ctx, p.rest)
	if err != nil {
		return err
	}
	cloud.Set(crossplane.Behaviour{NoBoot: true}) // the agents are real ones: machines starts them
	p.running.Go(cloud.Wait)
	service, err := serveCustomers(ctx, p.stage)
	if err != nil {
		return err
	}
	m := &machines{s: p.stage, service: service}
	p.play(ctx, "cloud", m.run)
	p.play(ctx, "kubelet", func(ctx context.Context) error { return controllers.RunKubelet(ctx, p.kube, p.endPod) })
	p.startControllers(ctx)
	return nil
}

// startControllers starts those who make objects.
func (p *play) startControllers(ctx context.Context) {
	p.dismiss = []func(){
		p.play(ctx, "apps", func(ctx context.Context) error { return controllers.RunApps(ctx, p.rest) }),
		p.play(ctx, "deployments", controllers.New(p.kube).Run),
	}
}

// endPod is what a pod does when it is asked to end: it finishes when the
// curtain falls, each in its own time.
func (p *play) endPod(ctx context.Context, pod *corev1.Pod) {
	select {
	case <-ctx.Done():
		return
	case <-p.curtain:
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(pod.UID[0]%8) * p.Pace / 4):
	}
}

// awaitUp waits until everything that the shop needs is up.
func (p *play) awaitUp(ctx context.Context) error {
	for _, wait := range []string{
		"kubectl wait deployment/web --for=create --timeout=60s",
		"kubectl wait pr/edge --for=create --timeout=60s",
		"kubectl wait pr/edge --for=condition=Ready --timeout=60s",
		"kubectl wait replicaset/web-1 --for=jsonpath={.status.replicas}=3 --timeout=60s",
		"kubectl wait pods -l app=shop --for=condition=Ready --timeout=60s",
		"kubectl wait repository/web --for=create --timeout=60s",
	} {
		if _, err := p.quiet(ctx, wait); err != nil {
			return fmt.Errorf("the shop is not up: %w", err)
		}
	}
	return nil
}
