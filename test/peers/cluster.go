package peers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// OursToo are the controllers of a kube-controller-manager that our server replaces, as
// --controllers takes them: its collector, its namespaces, and the ConfigMap with the CA.
const OursToo = "*,-garbage-collector-controller,-namespace-controller,-root-ca-certificate-publisher-controller"

// Cluster starts a kube-controller-manager, a kube-scheduler and kwok on the server of a
// kubeconfig, creates nodes, and returns when all nodes are ready. managerFlags are further
// flags of the kube-controller-manager. Clients have no rate limit worth mentioning.
func (g *Group) Cluster(ctx context.Context, kubeconfig, controllers string, nodes int, managerFlags ...string) error {
	const qps, burst = "--kube-api-qps=500", "--kube-api-burst=1000"
	if _, err := g.ControllerManager(kubeconfig, controllers, append([]string{qps, burst}, managerFlags...)...); err != nil {
		return err
	}
	if _, err := g.Scheduler(kubeconfig, qps, burst); err != nil {
		return err
	}
	if _, err := g.Kwok(kubeconfig); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for i := range nodes {
		if _, err := client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node: %w", err)
		}
	}
	return g.until(ctx, "nodes", func() error { return ready(ctx, client, nodes) })
}

func node(i int) *corev1.Node {
	name := fmt.Sprintf("node-%03d", i)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
		},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

// ready returns an error until all nodes are ready.
func ready(ctx context.Context, client kubernetes.Interface, want int) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	got := 0
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && len(n.Spec.Taints) == 0 {
				got++
			}
		}
	}
	if got < want {
		return fmt.Errorf("%d of %d nodes are ready", got, want)
	}
	return nil
}
