package kind

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/object"
)

// Client says what the client of a request may do. The api package puts it into the
// context of an Answer and of a Source, which read and write objects of other kinds
// than the one that the request was authorized for.
type Client struct {
	// May returns a denial for the client, or nil.
	May func(verb string, resource schema.GroupResource, namespace, name string) error
	// Mutate lets webhooks and policies change a new object, before it is prepared.
	Mutate func(ctx context.Context, v *Version, key object.Key, obj runtime.Object, dryRun bool) error
	// MayCreate checks the content of a new object as it will be stored: roles, for
	// instance, grant only what the client holds. Webhooks and policies may refuse it.
	MayCreate func(ctx context.Context, v *Version, key object.Key, obj runtime.Object, dryRun bool) error
}

type clientKey struct{}

// WithClient returns a context for work on behalf of a client.
func WithClient(ctx context.Context, c Client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// May returns a denial if the client in the context lacks a verb on a stored object, or
// nil. Without a client the server itself acts, and may.
func May(ctx context.Context, verb string, key object.Key) error {
	resource, group, _ := strings.Cut(key.Kind, ".")
	return MayResource(ctx, verb, schema.GroupResource{Group: group, Resource: resource}, key.Namespace, key.Name)
}

// MayResource is May for a resource.
func MayResource(ctx context.Context, verb string, r schema.GroupResource, namespace, name string) error {
	c, ok := ctx.Value(clientKey{}).(Client)
	if !ok {
		return nil
	}
	return c.May(verb, r, namespace, name)
}

// MutateNew lets webhooks and policies change an object that the client in the context
// creates.
func (v *Version) MutateNew(ctx context.Context, key object.Key, obj runtime.Object, dryRun bool) error {
	c, ok := ctx.Value(clientKey{}).(Client)
	if !ok || c.Mutate == nil {
		return nil
	}
	return c.Mutate(ctx, v, key, obj, dryRun)
}

// MayCreate returns a denial if the client in the context may not create an object with
// this content, or nil.
func (v *Version) MayCreate(ctx context.Context, key object.Key, obj runtime.Object, dryRun bool) error {
	c, ok := ctx.Value(clientKey{}).(Client)
	if !ok || c.MayCreate == nil {
		return nil
	}
	return c.MayCreate(ctx, v, key, obj, dryRun)
}

// ResourceOf returns the resource that clients mean by apiVersion and kind, as Names
// returns them.
func (s *Snapshot) ResourceOf(apiVersion, kind string) schema.GroupResource {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err == nil {
		if k, ok := s.OfGroupKind(gv.WithKind(kind).GroupKind()); ok {
			return schema.GroupResource{Group: k.Group, Resource: k.Plural}
		}
	}
	group, _, versioned := strings.Cut(apiVersion, "/")
	if !versioned && !strings.Contains(group, ".") {
		group = "" // a version of the core group
	}
	return schema.GroupResource{Group: group, Resource: strings.ToLower(kind)}
}
