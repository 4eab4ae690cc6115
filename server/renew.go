package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/internal/task"
)

// renewEvery is how often the certificates are checked. They are replaced 31 days
// before they expire, so a few failures are harmless.
const renewEvery = time.Hour

// renewal keeps the serving and the administrator's certificate valid while the
// server runs.
type renewal struct {
	identity        *access.Identity
	kubeconfig, url string
	now             func() time.Time
	every           time.Duration
	log             *slog.Logger

	writePending bool // the kubeconfig must still be written; owned by run
}

func newRenewal(c Config, identity *access.Identity, l net.Listener) *renewal {
	return &renewal{
		identity: identity, kubeconfig: kubeconfig(c), url: "https://" + clientAddress(c.Listen, l),
		now: time.Now, every: cmp.Or(c.renewEvery, renewEvery), log: c.Logger,
	}
}

// run renews until the context ends. It logs a failure and retries after every.
func (r *renewal) run(ctx context.Context) error {
	for task.Sleep(ctx, r.every) {
		if err := r.renewOnce(); err != nil {
			r.log.Error("certificates could not be renewed; the next try is in "+r.every.String(), "error", err)
		}
	}
	return nil
}

func (r *renewal) renewOnce() error {
	serving, servingErr := r.identity.Renew(r.now())
	if serving {
		r.log.Info("the serving certificate was renewed")
	}
	admin, err := r.identity.RenewKubeconfig(r.kubeconfig, r.url, r.now())
	if r.writePending && err == nil && !admin {
		admin, err = true, r.identity.WriteKubeconfig(r.kubeconfig, r.url, r.now())
	}
	r.writePending = err != nil
	if admin && err == nil {
		r.log.Info("the administrator's certificate was renewed; copies of the kubeconfig end with the old one", "kubeconfig", r.kubeconfig)
	}
	_, _, brokerErr := r.identity.BrokerFiles(r.now())
	return errors.Join(servingErr, err, brokerErr)
}
