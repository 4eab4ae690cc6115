package demo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/test/peers"
)

const (
	clusterNodes    = 100
	clusterReplicas = 500
	// clusterPatience bounds the waits for hundreds of pods.
	clusterPatience = 5 * time.Minute
	// clusterFinalizer holds one pod.
	clusterFinalizer = "shop.example.com/backup"
)

// RunCluster shows deletions in a cluster of a real size: our server, the real
// kube-controller-manager, kube-scheduler and kwok, whose directory is bin, with a hundred
// nodes and five hundred pods. With Config.Keep the cluster keeps running after the story, until the
// context ends. RunCluster ends every process that it has started.
func RunCluster(ctx context.Context, c Config, bin string) error {
	s, playing, err := openStage(ctx, c, newPrinter(c.Out))
	if err != nil {
		return err
	}
	group, err := peers.NewGroup(bin, filepath.Join(c.Dir, "peers"))
	if err != nil {
		return errors.Join(err, s.close())
	}
	cl := &clusterPlay{play: &play{stage: s}, group: group}
	err = cl.acts(playing)
	if err == nil && c.Keep {
		err = cl.keep(playing)
	}
	stopped := group.Stop()
	if err == nil && stopped == nil {
		s.line("kwok, kube-scheduler and kube-controller-manager have ended")
	}
	err = errors.Join(err, stopped, s.close())
	if err == nil {
		s.line("the server has ended")
	}
	return err
}

// clusterPlay is the state of the story of the cluster.
type clusterPlay struct {
	*play
	group *peers.Group
}

func (p *clusterPlay) acts(ctx context.Context) error {
	for _, act := range []func(context.Context) error{p.start, p.deploy, p.drain, p.deleteAndRestore, p.deleteNamespace} {
		if err := errors.Join(act(ctx), p.group.Running()); err != nil {
			return err
		}
		if err := p.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start runs the programs and creates the nodes.
func (p *clusterPlay) start(ctx context.Context) error {
	p.section("1. A cluster", "This server, and the real kube-controller-manager (without its garbage collector and namespace controller),", "kube-scheduler and kwok, which plays the kubelets.")
	if err := p.group.Cluster(ctx, p.kubeconfig, peers.OursToo, clusterNodes); err != nil {
		return err
	}
	p.line("%d nodes are ready", clusterNodes)
	p.line("to look around while it runs: export KUBECONFIG=%s", p.kubeconfig)
	for _, line := range []string{"kubectl create namespace shop", "kubectl config set-context --current --namespace=shop"} {
		if _, err := p.command(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

// deploy creates the pods and previews their deletion.
func (p *clusterPlay) deploy(ctx context.Context) error {
	p.section("2. Five hundred pods", "Deployment, ReplicaSet, pods; scheduled and started.")
	if _, err := p.command(ctx, fmt.Sprintf("kubectl create deployment web --image=shop/web --replicas=%d", clusterReplicas)); err != nil {
		return err
	}
	if err := p.awaitReplicas(ctx); err != nil {
		return err
	}
	if _, err := p.command(ctx, "kubectl get deployment,replicaset"); err != nil {
		return err
	}
	return p.brief(ctx, "exeunt preview deployment/web --counts")
}

// awaitReplicas waits until all replicas are ready, and prints the progress.
func (p *clusterPlay) awaitReplicas(ctx context.Context) error {
	told := time.Now()
	return p.untilLong(ctx, "the replicas", func() error {
		d, err := p.kube.AppsV1().Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.ReadyReplicas == clusterReplicas && d.Status.Replicas == clusterReplicas {
			p.line("%d pods are ready", clusterReplicas)
			return nil
		}
		if time.Since(told) > 2*time.Second {
			p.line("%d of %d pods are ready", d.Status.ReadyReplicas, clusterReplicas)
			told = time.Now()
		}
		return fmt.Errorf("%d of %d pods are ready", d.Status.ReadyReplicas, clusterReplicas)
	})
}

// drain evicts the pods of a node.
func (p *clusterPlay) drain(ctx context.Context) error {
	p.section("3. A node leaves", "A drain evicts the node's pods; a disruption budget slows it down.")
	if _, err := p.command(ctx, "kubectl create poddisruptionbudget web --selector=app=web --min-available=498"); err != nil {
		return err
	}
	node, err := p.busyNode(ctx)
	if err != nil {
		return err
	}
	if _, err := p.command(ctx, "kubectl drain "+node+" --timeout=240s"); err != nil {
		return err
	}
	if err := p.awaitReplicas(ctx); err != nil {
		return err
	}
	left, err := p.pods(ctx, "spec.nodeName="+node)
	if err != nil {
		return err
	}
	if left != 0 {
		return fmt.Errorf("%d pods are left on %s", left, node)
	}
	p.line("%s is empty, and its pods run elsewhere", node)
	return nil
}

// busyNode returns the name of the node with the most pods.
func (p *clusterPlay) busyNode(ctx context.Context) (string, error) {
	list, err := p.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	count, most := map[string]int{}, ""
	for _, pod := range list.Items {
		count[pod.Spec.NodeName]++
		if count[pod.Spec.NodeName] > count[most] {
			most = pod.Spec.NodeName
		}
	}
	return most, nil
}

// deleteAndRestore deletes the deployment, which a finalizer of one pod holds, and restores
// it with all its pods.
func (p *clusterPlay) deleteAndRestore(ctx context.Context) error {
	p.section("4. A mistake", "The deployment goes in the foreground: it waits for its pods, and one of them has a finalizer.", "Then everything is restored.")
	d, err := p.kube.AppsV1().Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	held, err := p.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if len(held.Items) == 0 {
		return errors.New("the deployment has no pod")
	}
	pod := held.Items[0].Name
	if _, err := p.command(ctx, "kubectl patch pod "+pod+` --type=merge -p {"metadata":{"finalizers":["`+clusterFinalizer+`"]}}`); err != nil {
		return err
	}
	if _, err := p.command(ctx, "kubectl delete deployment web --cascade=foreground --wait=false"); err != nil {
		return err
	}
	if err := p.awaitHeldBy(ctx, pod); err != nil {
		return err
	}
	if _, err := p.command(ctx, "kubectl patch pod "+pod+` --type=merge -p {"metadata":{"finalizers":null}}`); err != nil {
		return err
	}
	if err := p.awaitPods(ctx, 0); err != nil {
		return err
	}
	if _, err := p.quiet(ctx, "kubectl wait deployment/web --for=delete --timeout=60s"); err != nil {
		return err
	}
	if err := p.brief(ctx, "exeunt restore --cascade "+string(d.UID)); err != nil {
		return err
	}
	// The archive has the pod as it was when its deletion was asked for: with the finalizer.
	if _, err := p.command(ctx, "kubectl patch pod "+pod+` --type=merge -p {"metadata":{"finalizers":null}}`); err != nil {
		return err
	}
	return p.awaitReplicas(ctx)
}

// awaitHeldBy waits until only one pod is left, and asks why the deployment still exists.
func (p *clusterPlay) awaitHeldBy(ctx context.Context, pod string) error {
	if err := p.awaitPods(ctx, 1); err != nil {
		return err
	}
	out, err := p.command(ctx, "exeunt why deployment/web")
	if err == nil && (!strings.Contains(out, pod) || !strings.Contains(out, clusterFinalizer)) {
		err = fmt.Errorf("exeunt why does not name pod %s and its finalizer", pod)
	}
	return err
}

// deleteNamespace empties the namespace.
func (p *clusterPlay) deleteNamespace(ctx context.Context) error {
	p.section("5. The end", "The namespace goes with everything in it.")
	if err := p.brief(ctx, "exeunt preview namespace/shop --counts"); err != nil {
		return err
	}
	if _, err := p.command(ctx, "kubectl delete namespace shop --timeout=240s"); err != nil {
		return err
	}
	left, err := p.pods(ctx, "")
	if err != nil {
		return err
	}
	if left != 0 {
		return fmt.Errorf("%d pods are left", left)
	}
	p.line("no pod is left")
	return nil
}

// awaitPods waits until as many pods exist.
func (p *clusterPlay) awaitPods(ctx context.Context, want int) error {
	err := p.untilLong(ctx, "the end of the pods", func() error {
		left, err := p.pods(ctx, "")
		if err == nil && left != want {
			err = fmt.Errorf("%d pods are left, want %d", left, want)
		}
		return err
	})
	if err == nil {
		p.line("%d pods are left", want)
	}
	return err
}

// brief runs a command and prints the first lines of its output.
func (p *clusterPlay) brief(ctx context.Context, line string) error {
	p.line("$ %s", line)
	out, err := p.quiet(ctx, line)
	p.block(head(out, 8))
	return err
}

// pods counts the pods that a field selector selects.
func (p *clusterPlay) pods(ctx context.Context, selector string) (int, error) {
	list, err := p.kube.CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return 0, err
	}
	return len(list.Items), nil
}

// untilLong is until for hundreds of pods.
func (p *clusterPlay) untilLong(ctx context.Context, what string, condition func() error) error {
	deadline := time.Now().Add(clusterPatience)
	for {
		err := until(ctx, what, condition)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		if err := p.group.Running(); err != nil {
			return err
		}
	}
}

// head returns the first lines of a text, and how many follow.
func head(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) <= n {
		return text
	}
	return strings.Join(lines[:n], "\n") + fmt.Sprintf("\n(%d more lines)\n", len(lines)-n)
}
