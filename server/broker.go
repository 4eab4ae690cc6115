package server

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/crossplane"
	"github.com/exeunt/exeunt/broker/mesh"
	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/broker/provisioning"
	"github.com/exeunt/exeunt/broker/publish"
	"github.com/exeunt/exeunt/broker/reconcile"
	"github.com/exeunt/exeunt/broker/sqlbroker"
	"github.com/exeunt/exeunt/deletion/report"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/review"
)

// keepers maps the finalizers of this server's own components to functions that
// explain why an object still has them.
func keepers() map[string]report.Keeper {
	return map[string]report.Keeper{
		provisioning.TeardownFinalizer: {Name: "the broker", Explain: provisioning.Explain, Review: provisioning.ReviewByUID},
		provisioning.InUseFinalizer:    {Name: "the broker", Explain: provisioning.ExplainBlueprint},
		v1alpha1.Finalizer:             {Name: "the mesh", Explain: mesh.Explain, Review: mesh.ReviewByUID},
	}
}

// brokerLoops is how many batches of rounds run at once, so that a cluster that
// does not answer delays only one of them.
const brokerLoops = 2

// addBroker builds the broker. The kubeconfig of this server must exist. It sends no request to a cluster.
func (s *server) addBroker(context.Context) error {
	c := s.config
	cluster, err := connect(c, s.identity, s.listener)
	if err != nil {
		return err
	}
	resources := provisioning.New(s.db, s.store, s.kinds, c.Logger)
	repository := sqlbroker.New(s.db, nil)
	tokens := s.nodes.Ports()
	service, err := broker.NewService(broker.Config{
		Repository: repository, Emitter: repository, Tokens: tokens,
		Blueprints: resources.Published(), Credentials: cluster, Namespaces: cluster,
	})
	if err != nil {
		return err
	}
	rounds, err := reconcile.NewReconciler(reconcile.Config{
		Service: service, Rounds: repository, Declarations: resources, Blueprints: resources.Known(), Namespaces: cluster,
		Tokens: tokens, Nodes: tokens, Reporter: tokens, Substrate: cluster, Logger: c.Logger,
	})
	if err != nil {
		return err
	}
	sinks := []publish.Sink{publish.Log{Logger: c.Logger}, resources.Events()}
	if c.EventsWebhook != "" {
		sinks = append(sinks, publish.Webhook{URL: c.EventsWebhook})
	}
	options := review.Options{Logger: c.Logger}
	loop, err := review.New(s.db, reconcile.Queue, rounds, review.Transactions(s.db), options)
	if err != nil {
		return err
	}
	publisher, err := review.New(s.db, publish.Queue, publish.New(repository, sinks...), review.Transactions(s.db), options)
	if err != nil {
		return err
	}
	follower := reconcile.Follower{Cluster: cluster, Substrates: repository, Wake: loop.Wake, Logger: c.Logger}
	p := part{
		name: "broker", kinds: resources.Serve(service), queues: []*review.Engine{loop, publisher},
		tasks: []task.Task{
			{Name: "broker-events", Run: publisher.Run}, {Name: "blueprints", Run: resources.Run}, {Name: "broker-follow", Run: follower.Run},
			task.Loop("broker-wake", func(ctx context.Context) { s.store.WakeOn(ctx, provisioning.ResourceStorage, loop.Wake) }),
		},
		close: func() error { cluster.Close(); return nil },
	}
	for range brokerLoops {
		p.tasks = append(p.tasks, task.Task{Name: "broker", Run: loop.Run})
	}
	s.add(p)
	return nil
}

// connect creates the client of the management cluster. The default is this server
// itself, in the broker's own name.
func connect(c Config, identity *access.Identity, l net.Listener) (*crossplane.Cluster, error) {
	if u, err := url.Parse(c.EventsWebhook); c.EventsWebhook != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("--events-webhook %q: want an http or https URL", c.EventsWebhook)
	}
	own, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.Data, "kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of this server: %w", err)
	}
	enrolment := crossplane.Enrolment{Server: own.Host, CA: own.CAData}
	if c.EnrolURL != "" {
		enrolment.Server = c.EnrolURL
	}
	// A certificate in memory would expire while the server runs. The files are
	// renewed, and the client reads them again. The loopback address works even if
	// the address in the kubeconfig does not.
	if own.CertFile, own.KeyFile, err = identity.BrokerFiles(time.Now()); err != nil {
		return nil, err
	}
	own.CertData, own.KeyData = nil, nil
	own.Host = localURL(c.Listen, l)
	management := own
	if c.ManagementKubeconfig != "" {
		if management, err = clientcmd.BuildConfigFromFlags("", c.ManagementKubeconfig); err != nil {
			return nil, fmt.Errorf("--management-kubeconfig: %w", err)
		}
	}
	return crossplane.Connect(management, enrolment)
}
