package serviceaccount

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	// rootCADescription is the annotation that kube-controller-manager writes.
	rootCADescription = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc."
	// ensurers is how many namespaces are completed at once: enough for the store to write
	// their objects in batches.
	ensurers = 16
)

var (
	accounts   = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// Defaults gives every namespace its ServiceAccount "default" and the ConfigMap
// "kube-root-ca.crt" with the server's authority, right after the namespace is created,
// and again after one of the two is removed or changed. Every replica runs it: the writes
// are idempotent. In a terminating namespace the store refuses creates, so the two do not
// hold up its removal.
type Defaults struct {
	Writer objects.Writer
	CA     []byte // PEM: the authorities of this server
	// Retired are authorities that are no longer trusted, PEM. Their copies are removed.
	Retired []byte
	Logger  *slog.Logger
	// Retry is the pause before a namespace is tried again that a quota keeps incomplete. Default one minute.
	Retry time.Duration

	refused chan struct{} // has a value if a quota refused an object; made by Run
}

// errRefused ends follow, so that all namespaces are looked at again.
var errRefused = errors.New("a quota refused an object")

// Run works until the context ends. The watches begin at a revision before the first
// look at all namespaces, so that one of them sees every change.
func (d *Defaults) Run(ctx context.Context) error {
	d.refused = make(chan struct{}, 1)
	return d.Writer.Store.Keep(ctx, d.Logger, "default service accounts could not be created", func(from int64) error {
		if err := d.ensureAll(ctx); err != nil {
			return err
		}
		if err := d.follow(ctx, from); !errors.Is(err, errRefused) {
			return err
		}
		return nil
	})
}

// ensureAll completes all namespaces: two reads for each, and a write for what is missing.
func (d *Defaults) ensureAll(ctx context.Context) error {
	listing, err := d.Writer.Store.List(ctx, store.ListRequest{Kind: object.Namespaces})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(ensurers)
	for listing.Next() && ctx.Err() == nil {
		name := listing.Object().Name
		group.Go(task.Catch(func() error { return d.complete(ctx, name) }))
	}
	return errors.Join(group.Wait(), listing.Err())
}

// Ensure completes namespaces, before Run.
func (d *Defaults) Ensure(ctx context.Context, namespaces ...string) error {
	for _, namespace := range namespaces {
		if err := d.complete(ctx, namespace); err != nil {
			return fmt.Errorf("complete namespace %s: %w", namespace, err)
		}
	}
	return nil
}

// follow completes the namespace of every change that matters. It returns the error that
// ended it.
func (d *Defaults) follow(ctx context.Context, from int64) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range []store.WatchRequest{
		{Kind: object.Namespaces, From: from},
		{Kind: object.ServiceAccounts, Name: object.DefaultAccount, From: from},
		{Kind: object.ConfigMaps, Name: object.RootCA, From: from},
	} {
		group.Go(task.Catch(func() error {
			return d.Writer.Store.Follow(ctx, r, func(events []*store.Event) error { return d.react(ctx, events) })
		}))
	}
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.refused:
		}
		if !task.Sleep(ctx, cmp.Or(d.Retry, time.Minute)) {
			return ctx.Err()
		}
		return errRefused
	})
	return group.Wait()
}

// react completes the namespaces of events: new ones, and those that lost or changed one
// of the two.
func (d *Defaults) react(ctx context.Context, events []*store.Event) error {
	incomplete := map[string]bool{}
	for _, e := range events {
		switch created := e.Type == store.Created; {
		case e.Object.Kind == object.Namespaces && created:
			incomplete[e.Object.Name] = true
		case e.Object.Kind == object.ServiceAccounts && !created,
			e.Object.Kind == object.ConfigMaps: // another replica may have created it, with its authority
			incomplete[e.Object.Namespace] = true
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(ensurers)
	for namespace := range incomplete {
		group.Go(task.Catch(func() error { return d.complete(ctx, namespace) }))
	}
	return group.Wait()
}

// complete is ensure, except that a quota which refuses an object holds up no other namespace: it is tried again
// later.
func (d *Defaults) complete(ctx context.Context, namespace string) error {
	err := d.ensure(ctx, namespace)
	if !object.Is(err, object.Forbidden) {
		return err
	}
	d.Logger.Warn("namespace has no default service account or no authority", "namespace", namespace, "error", err, "retry", cmp.Or(d.Retry, time.Minute))
	select {
	case d.refused <- struct{}{}:
	default:
	}
	return nil
}

// ensure creates what is missing in a namespace, and corrects the ConfigMap.
func (d *Defaults) ensure(ctx context.Context, namespace string) error {
	_, err := d.Writer.Get(ctx, accounts, namespace, object.DefaultAccount)
	if object.Is(err, object.NotFound) {
		err = d.Writer.Create(ctx, accounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object.DefaultAccount}})
	}
	if err := tolerable(err); err != nil {
		return err
	}
	found, err := d.Writer.Get(ctx, configMaps, namespace, object.RootCA)
	if object.Is(err, object.NotFound) {
		return tolerable(d.Writer.Create(ctx, configMaps, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: object.RootCA, Annotations: map[string]string{"kubernetes.io/description": rootCADescription},
			},
			Data: map[string]string{"ca.crt": string(d.CA)},
		}))
	}
	old, ok := found.(*corev1.ConfigMap)
	if err != nil || !ok || old.DeletionTimestamp != nil {
		return err
	}
	bundle := withCA(old.Data["ca.crt"], d.CA, d.Retired)
	if bundle == old.Data["ca.crt"] && len(old.Data) == 1 && len(old.BinaryData) == 0 {
		return nil
	}
	next := old.DeepCopy()
	next.Data, next.BinaryData = map[string]string{"ca.crt": bundle}, nil
	return tolerable(d.Writer.Update(ctx, configMaps, next, old))
}

// withCA returns a bundle that has the authorities. Replicas may have different ones,
// so one does not remove what another wrote: it adds its own. What is not a certificate,
// has expired, or is retired, goes.
func withCA(bundle string, ca, retired []byte) string {
	valid, clean := certificates([]byte(bundle))
	gone, _ := certificates(retired)
	own, _ := certificates(ca)
	kept := slices.DeleteFunc(slices.Clone(valid), func(cert string) bool { return slices.Contains(gone, cert) && !slices.Contains(own, cert) })
	clean = clean && len(kept) == len(valid)
	for _, cert := range own {
		if !slices.Contains(kept, cert) {
			kept, clean = append(kept, cert), false
		}
	}
	if clean {
		return bundle
	}
	return strings.Join(kept, "")
}

// certificates returns the valid certificates of a PEM bundle, and whether it holds
// nothing else.
func certificates(bundle []byte) (valid []string, clean bool) {
	clean = true
	for len(bytes.TrimSpace(bundle)) > 0 {
		block, rest := pem.Decode(bundle)
		if block == nil {
			return valid, false
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err == nil && block.Type == "CERTIFICATE" && time.Now().Before(cert.NotAfter) {
			valid = append(valid, string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})))
		} else {
			clean = false
		}
		bundle = rest
	}
	return valid, clean
}

// tolerable drops the errors after which nothing is left to do: another replica was
// first, the namespace is terminating or gone, or another change follows.
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
