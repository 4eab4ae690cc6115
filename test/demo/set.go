package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/exeunt/exeunt/test/controllers"
	"github.com/exeunt/exeunt/test/crossplane"
)

// createShop is the first act: it starts everything and creates the shop.
func (p *play) createShop(ctx context.Context) error {
	p.section("1. The stage is set", "A server in a temporary directory, controllers, and a cloud that is played.")
	if err := p.prepare(ctx); err != nil {
		return err
	}
	if err := p.startParts(ctx); err != nil {
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

// prepare creates the namespace, the kinds and the blueprint.
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

// startParts starts the cloud, the machines and the controllers.
func (p *play) startParts(ctx context.Context) (err error) {
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

// startControllers starts the controllers that create objects.
func (p *play) startControllers(ctx context.Context) {
	p.endControllers = []func(){
		p.play(ctx, "apps", func(ctx context.Context) error { return controllers.RunApps(ctx, p.rest) }),
		p.play(ctx, "deployments", controllers.New(p.kube).Run),
	}
}

// endPod ends a pod after podsMayEnd is closed, each after a different delay.
func (p *play) endPod(ctx context.Context, pod *corev1.Pod) {
	select {
	case <-ctx.Done():
		return
	case <-p.podsMayEnd:
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
