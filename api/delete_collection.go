package api

import (
	"cmp"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/exeunt/exeunt/api/record"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	// listedAtOnce is how many objects DeleteCollection reads at a time.
	listedAtOnce = 500
	// deletedAtOnce is how many of them it hands to the writer at a time: they share a
	// commit, for which the writes of other clients wait.
	deletedAtOnce = 250
	// largeCollection is how many objects a DeleteCollection deletes that is logged, as the
	// collector logs a large cascade.
	largeCollection = 1000
)

// DeleteCollection deletes the objects that a list selects. All belong to one cascade. The
// answer lists them. After an error it begins no more deletes; those that were begun together
// with the failed one may have happened.
func (r *resource) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, list *metainternal.ListOptions) (runtime.Object, error) {
	page := *list
	page.Limit = cmp.Or(page.Limit, listedAtOnce)
	collected := listBuilder{list: r.v.NewList()}
	c := collectionDelete{resource: r, validate: validate, options: options, cascade: string(object.NewUID())}
	if c.options == nil {
		c.options = metav1.NewDeleteOptions(0)
	}
	defer func() {
		r.api.audit.Deletions(ctx, c.cascade, c.done)
		c.logLarge(ctx)
	}()
	for next := c.read(ctx, page); ; {
		p := <-next
		if p.panicked != nil {
			panic(p.panicked)
		}
		if p.err != nil {
			return nil, p.err
		}
		more := p.next != nil && list.Limit == 0
		if more { // the next page is read while this one is deleted
			page.Continue, page.ResourceVersion, page.ResourceVersionMatch = p.next.String(), "", ""
			next = c.read(ctx, page)
		}
		collected.items = append(collected.items, p.items...)
		if err := c.deletePage(ctx, p.objects); err != nil {
			if more {
				<-next // it uses the request, which ends now
			}
			return nil, err
		}
		if !more {
			return collected.finish(p.listed)
		}
	}
}

// collectionPage is a page of the objects to delete.
type collectionPage struct {
	listed
	items []runtime.Object
	err   error

	panicked any // by the read: it would end the server, but for a request it is answered
}

// read reads a page in the background. It decodes the objects for the answer before the first
// of them is deleted, because that may fail.
func (c *collectionDelete) read(ctx context.Context, options metainternal.ListOptions) <-chan collectionPage {
	page := make(chan collectionPage, 1)
	go func() {
		var p collectionPage
		defer func() {
			p.panicked = recover()
			page <- p
		}()
		if p.listed, p.err = c.list(ctx, &options); p.err == nil {
			p.items, p.err = c.decodeAll(ctx, p.objects)
		}
	}()
	return page
}

// collectionDelete is one DeleteCollection. The preconditions of the options apply to each object.
type collectionDelete struct {
	*resource
	validate rest.ValidateObjectFunc
	options  *metav1.DeleteOptions
	cascade  string
	done     record.Deletions
}

// logLarge logs the end of a large DeleteCollection, also of one that failed.
func (c *collectionDelete) logLarge(ctx context.Context) {
	if c.done.Removed+c.done.Marked < largeCollection {
		return
	}
	c.api.Logger.Info("large collection deleted", "resource", c.v.Resource().String(), "namespace", genericrequest.NamespaceValue(ctx), "user", clientName(ctx),
		"removed", c.done.Removed, "marked", c.done.Marked, "cascade", c.cascade, "audit", record.RequestID(ctx))
}

// deletePage deletes listed objects. It ignores those that are already gone.
func (c *collectionDelete) deletePage(ctx context.Context, objects []object.Object) error {
	for len(objects) > 0 {
		if err := ctx.Err(); err != nil {
			return c.internalError(err)
		}
		n := min(deletedAtOnce, len(objects))
		if c.validate != nil && c.admits("delete", objects[0].Namespace) {
			n = 1 // webhooks and policies see one after the other, as in Kubernetes
		}
		if err := c.deleteSome(ctx, objects[:n]); err != nil {
			return err
		}
		objects = objects[n:]
	}
	return nil
}

func (c *collectionDelete) deleteSome(ctx context.Context, objects []object.Object) (failed error) {
	count := func(result store.DeleteResult, err error) {
		switch {
		case err == nil:
			c.done.Add(result, c.options)
		case failed == nil && !apierrors.IsNotFound(err):
			failed = err
		}
	}
	if len(objects) == 1 {
		count(c.deleteAdmitted(ctx, objects[0].Key, c.validate, c.options.DeepCopy(), c.cascade))
		return failed
	}
	c.warnOrphans(ctx, c.options)
	requests := make([]store.DeleteRequest, len(objects))
	for i, o := range objects {
		requests[i] = c.deleteRequest(ctx, o.Key, c.options, c.cascade)
	}
	results, errs := c.api.Store.DeleteAll(ctx, requests)
	for i, o := range objects {
		results[i], errs[i] = c.removeMarked(ctx, requests[i], results[i], errs[i])
		count(results[i], c.afterDelete(ctx, o.Key, c.options, results[i], errs[i]))
	}
	return failed
}
