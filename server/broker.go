package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
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
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/store"
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

// provisioner holds the parts of the broker.
type provisioner struct {
	store           *store.Store
	api             *provisioning.API
	cluster         *crossplane.Cluster
	repository      *sqlbroker.Repository
	log             *slog.Logger
	loop, publisher *review.Engine
}

// openBroker builds the broker and registers its kinds. The kubeconfig of this
// server must exist. It sends no request to a cluster.
func openBroker(c Config, p parts, identity *access.Identity, l net.Listener) (*provisioner, error) {
	cluster, err := connect(c, identity, l)
	if err != nil {
		return nil, err
	}
	b := &provisioner{store: p.store, cluster: cluster, api: provisioning.New(p.db, p.store, p.kinds, c.Logger)}
	repository := sqlbroker.New(p.db, nil)
	b.repository, b.log = repository, c.Logger
	tokens := p.nodes.Ports()
	service, err := broker.NewService(broker.Config{
		Repository: repository, Emitter: repository, Tokens: tokens,
		Blueprints: b.api.Published(), Credentials: cluster, Namespaces: cluster,
	})
	if err != nil {
		return nil, err
	}
	rounds, err := reconcile.NewReconciler(reconcile.Config{
		Service: service, Rounds: repository, Declarations: b.api, Blueprints: b.api.Known(), Namespaces: cluster,
		Tokens: tokens, Nodes: tokens, Reporter: tokens, Substrate: cluster, Logger: c.Logger,
	})
	if err != nil {
		return nil, err
	}
	sinks := []publish.Sink{publish.Log{Logger: c.Logger}, b.api.Events()}
	if c.EventsWebhook != "" {
		sinks = append(sinks, publish.Webhook{URL: c.EventsWebhook})
	}
	options := review.Options{Logger: c.Logger}
	if b.loop, err = review.New(p.db, reconcile.Queue, rounds, review.Transactions(p.db), options); err != nil {
		return nil, err
	}
	if b.publisher, err = review.New(p.db, publish.Queue, publish.New(repository, sinks...), review.Transactions(p.db), options); err != nil {
		return nil, err
	}
	p.kinds.Put(b.api.Serve(service)...)
	return b, nil
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

// meters returns the metrics of its queues.
func (b *provisioner) meters() []prometheus.Collector {
	return []prometheus.Collector{b.loop, b.publisher}
}

// run runs the broker until the context ends.
func (b *provisioner) run(ctx context.Context) error {
	defer b.cluster.Close()
	group, ctx := errgroup.WithContext(ctx)
	for range brokerLoops {
		group.Go(func() error { return b.loop.Run(ctx) })
	}
	group.Go(func() error { return b.publisher.Run(ctx) })
	group.Go(func() error { return b.api.Run(ctx) })
	group.Go(func() error {
		b.store.WakeOn(ctx, provisioning.ResourceStorage, b.loop.Wake)
		return nil
	})
	group.Go(func() error {
		follower := reconcile.Follower{Cluster: b.cluster, Substrates: b.repository, Wake: b.loop.Wake, Logger: b.log}
		return follower.Run(ctx)
	})
	return group.Wait()
}
