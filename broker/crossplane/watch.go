package crossplane

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/exeunt/exeunt/broker"
)

// Watch calls changed with a resource's id whenever an object of the kind that
// was made for it has changed. It returns when ctx ends or the cluster ends the
// watch, which clusters do every few minutes: then watch again. It does not
// report changes in between: the loop polls, too.
func (c *Cluster) Watch(ctx context.Context, t broker.ObjectType, changed func(broker.ProvisionedResourceID)) error {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(t.APIVersion)
	list.SetKind(t.Kind + "List")
	bounded, cancel := context.WithTimeout(ctx, requestTime)
	err := c.client.List(bounded, list, client.HasLabels{ResourceLabel}, client.Limit(1))
	cancel()
	if err != nil {
		return fmt.Errorf("list %s: %w", t.Kind, err)
	}
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
	events, err := c.watcher.Watch(ctx, list, client.HasLabels{ResourceLabel}, from)
	if err != nil {
		return fmt.Errorf("watch %s: %w", t.Kind, err)
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, open := <-events.ResultChan():
			if !open {
				return nil
			}
			if e.Type == watch.Error {
				return fmt.Errorf("watch %s: %w", t.Kind, apierrors.FromObject(e.Object))
			}
			if o, ok := e.Object.(*unstructured.Unstructured); ok {
				changed(broker.ProvisionedResourceID(o.GetLabels()[ResourceLabel]))
			}
		}
	}
}
