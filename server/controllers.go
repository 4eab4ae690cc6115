package server

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"

	"github.com/exeunt/exeunt/internal/task"
)

// addControllers adds a controller of Kubernetes that clients of an API server alone miss: it fills the
// token Secrets of ServiceAccounts, and removes them with their account. Every replica runs
// it, and so may a kube-controller-manager: its writes are idempotent.
func (s *server) addControllers(context.Context) error {
	client, err := kubernetes.NewForConfig(s.self.config())
	if err != nil {
		return err
	}
	s.add(part{name: "controllers", tasks: []task.Task{
		{Name: "account-secrets", Run: func(ctx context.Context) error { return s.fillSecrets(ctx, client) }},
	}})
	return nil
}

func (s *server) fillSecrets(ctx context.Context, client kubernetes.Interface) error {
	accounts := informers.NewSharedInformerFactory(client, 0)
	// Only the Secrets that matter: the others stay out of memory.
	secrets := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String()
	}))
	controller, err := serviceaccount.NewTokensController(klog.FromContext(ctx), accounts.Core().V1().ServiceAccounts(), secrets.Core().V1().Secrets(), client,
		serviceaccount.TokensControllerOptions{TokenGenerator: s.access.ServiceAccounts(), RootCA: s.identity.AuthorityPEM()})
	if err != nil {
		return err
	}
	accounts.StartWithContext(ctx)
	secrets.StartWithContext(ctx)
	controller.Run(ctx, 1)
	accounts.Shutdown()
	secrets.Shutdown()
	return nil
}
