package serviceaccount

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/access/objects"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	defaultAccount = "default"
	rootCA         = "kube-root-ca.crt"
)

var (
	accounts   = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// Defaults gives every namespace its ServiceAccount "default" and the ConfigMap
// "kube-root-ca.crt" with the server's authority, right after the namespace is created,
// and again after one is removed or changed. Every replica runs it: the writes are
// idempotent, and the first wins. In a terminating namespace the store refuses creates,
// so the collector is not held up.
type Defaults struct {
	Writer objects.Writer
	CA     []byte // PEM
	Logger *slog.Logger
}

// Run works until the context ends. The watches begin at a revision before the first
// look at all namespaces, so that either sees every change.
func (d *Defaults) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		from := d.Writer.Store.Revision()
		err := d.ensureAll(ctx)
		if err == nil {
			err = d.follow(ctx, from)
		}
		if ctx.Err() == nil && !object.Is(err, object.Expired) {
			d.Logger.Warn("default service accounts could not be created; the next try is in a second", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

func (d *Defaults) ensureAll(ctx context.Context) error {
	listing, err := d.Writer.Store.List(ctx, store.ListRequest{Kind: object.Namespaces})
	if err != nil {
		return err
	}
	for listing.Next() {
		if err := d.ensure(ctx, listing.Object().Name); err != nil {
			return err
		}
	}
	return listing.Err()
}

// follow looks at the namespace of every change that matters. It returns the error that
// ended it.
func (d *Defaults) follow(ctx context.Context, from int64) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range []store.WatchRequest{
		{Kind: object.Namespaces, From: from}, {Kind: "serviceaccounts", Name: defaultAccount, From: from}, {Kind: "configmaps", Name: rootCA, From: from},
	} {
		group.Go(func() error {
			w, err := d.Writer.Store.Watch(ctx, r)
			for err == nil {
				var events []*store.Event
				events, _, err = w.Next(ctx)
				for _, e := range events {
					if err == nil {
						err = d.react(ctx, e)
					}
				}
			}
			return err
		})
	}
	return group.Wait()
}

func (d *Defaults) react(ctx context.Context, e *store.Event) error {
	if e.Object.Kind == object.Namespaces {
		if e.Type != store.Created {
			return nil
		}
		return d.ensure(ctx, e.Object.Name)
	}
	if e.Type == store.Created {
		return nil
	}
	return d.ensure(ctx, e.Object.Namespace)
}

// ensure creates what is missing in a namespace, and corrects the ConfigMap.
func (d *Defaults) ensure(ctx context.Context, namespace string) error {
	m := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	_, err := d.Writer.Get(ctx, accounts, namespace, defaultAccount)
	if object.Is(err, object.NotFound) {
		err = d.Writer.Create(ctx, accounts, &corev1.ServiceAccount{ObjectMeta: m(defaultAccount)})
	}
	if err := tolerable(err); err != nil {
		return err
	}
	want := map[string]string{"ca.crt": string(d.CA)}
	found, err := d.Writer.Get(ctx, configMaps, namespace, rootCA)
	switch old, _ := found.(*corev1.ConfigMap); {
	case object.Is(err, object.NotFound):
		made := &corev1.ConfigMap{ObjectMeta: m(rootCA), Data: want}
		made.Annotations = map[string]string{"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc."}
		err = d.Writer.Create(ctx, configMaps, made)
	case err == nil && old.DeletionTimestamp == nil && old.Data["ca.crt"] != want["ca.crt"]:
		next := old.DeepCopy()
		next.Data = want
		err = d.Writer.Update(ctx, configMaps, next, old)
	}
	return tolerable(err)
}

// tolerable drops the errors after which nothing is to be done: another replica was
// first, the namespace goes, or another change comes.
func tolerable(err error) error {
	var known *object.Error
	if errors.As(err, &known) {
		switch known.Code {
		case object.AlreadyExists, object.BeingDeleted, object.Conflict, object.NotFound, object.NoNamespace, object.Terminating:
			return nil
		}
	}
	return err
}
