package kind

import (
	"context"
	"errors"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/object"
)

// Client is the identity and the rights of the client of a request. Who reads or writes
// objects of other kinds than the one that the request was authorized for takes a Client
// as an argument and asks it. The zero Client may do nothing. Package api makes Clients.
type Client struct {
	Name string // of the user
	// User is who the client is, to ask for its rights again later. Nil means the server itself.
	User user.Info
	// Authorize returns a denial for the client, or nil.
	Authorize func(verb string, resource schema.GroupResource, namespace, name string) error
	// Mutate lets webhooks and policies change a new object, before it is prepared.
	Mutate func(ctx context.Context, v *Version, key object.Key, obj runtime.Object, dryRun bool) error
	// Admit checks the content of a new object as it will be stored: roles, for instance,
	// grant only what the client holds. Webhooks and policies may refuse it.
	Admit func(ctx context.Context, v *Version, key object.Key, obj runtime.Object, dryRun bool) error
	// Contain returns a denial of what the content of a new object needs, as Admit does,
	// but asks no webhooks and policies.
	Contain func(ctx context.Context, r schema.GroupVersionResource, obj runtime.Object) error
	// Write sends a write through the API as a request of its own: the client's rights, webhooks, policies, quotas and
	// preconditions decide, and the audit log has it. It returns the answer.
	Write func(ctx context.Context, w Write) ([]byte, error)
	// Pretend makes a namespace exist for Mutate and Admit until the context ends, for a dry
	// run that would create it. Nil means they do not look for namespaces.
	Pretend func(ctx context.Context, namespace runtime.Object)
	// JudgeDelete asks the policies about a delete, which has no effect: the error is their
	// refusal. It does not ask webhooks. Nil if there are no policies.
	JudgeDelete func(ctx context.Context, o object.Object, options metav1.DeleteOptions) error
	// JudgeCollected is JudgeDelete for what the collector would delete then. emptying: its
	// namespace goes.
	JudgeCollected func(ctx context.Context, o object.Object, options metav1.DeleteOptions, emptying bool) error
	// Judges names the webhooks and policies whose rules select deletes of a stored kind.
	// Nil if there are none.
	Judges func(kind string) []string
}

// Write is a write of a stored object, as a part of what a client asked for.
type Write struct {
	Method      string // PUT or DELETE
	Version     *Version
	Key         object.Key
	Subresource string
	Body        []byte // of a delete: its options, which say whether it is a dry run
	DryRun      bool
	Manager     string // of the fields; also the User-Agent
	RequestID   string // the Audit-Id; empty: a new one
}

// May returns a denial if the client lacks a verb on a stored object, or nil.
func (c Client) May(verb string, key object.Key) error {
	return c.MayResource(verb, schema.ParseGroupResource(key.Kind), key.Namespace, key.Name)
}

// MayResource is May for a resource.
func (c Client) MayResource(verb string, r schema.GroupResource, namespace, name string) error {
	resource, _, _ := strings.Cut(r.Resource, "/")
	if r.Group == "" && resource == object.Namespaces && verb != "create" && verb != "list" {
		namespace = name // a request for one Namespace is in that namespace
	}
	return c.MayIn(namespace, verb, r, name)
}

// MayIn is MayResource in just this namespace, or in all if it is empty: also in earlier ones that had the name of one of today.
func (c Client) MayIn(namespace, verb string, r schema.GroupResource, name string) error {
	if c.Authorize == nil {
		return apierrors.NewForbidden(r, name, errNoClient)
	}
	return c.Authorize(verb, r, namespace, name)
}

// MutateNew lets webhooks and policies change an object that the client creates.
func (c Client) MutateNew(ctx context.Context, v *Version, key object.Key, obj runtime.Object, dryRun bool) error {
	return c.ask(ctx, c.Mutate, v, key, obj, dryRun)
}

// MayCreate returns a denial if the client may not create an object with this content, or
// nil.
func (c Client) MayCreate(ctx context.Context, v *Version, key object.Key, obj runtime.Object, dryRun bool) error {
	return c.ask(ctx, c.Admit, v, key, obj, dryRun)
}

// MayContain returns a denial if the client may not create an object with this content, by
// its rights alone, or nil.
func (c Client) MayContain(ctx context.Context, r schema.GroupVersionResource, obj runtime.Object) error {
	if c.Contain == nil {
		return apierrors.NewForbidden(r.GroupResource(), "", errNoClient)
	}
	return c.Contain(ctx, r, obj)
}

var errNoClient = errors.New("the request has no client")

func (c Client) ask(ctx context.Context, check func(context.Context, *Version, object.Key, runtime.Object, bool) error,
	v *Version, key object.Key, obj runtime.Object, dryRun bool) error {
	if check == nil {
		return apierrors.NewForbidden(v.Resource().GroupResource(), key.Name, errNoClient)
	}
	return check(ctx, v, key, obj, dryRun)
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

// UserInfo is a user as the API shows and the archive stores it.
func UserInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for k, v := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[k] = v
	}
	return info
}

// UserOf is the user with the fields of a UserInfo, or of a SubjectAccessReview.
func UserOf[Value ~[]string](name, uid string, groups []string, extra map[string]Value) user.Info {
	info := &user.DefaultInfo{Name: name, UID: uid, Groups: groups}
	for k, v := range extra {
		if info.Extra == nil {
			info.Extra = map[string][]string{}
		}
		info.Extra[k] = v
	}
	return info
}
