// Package admission runs the webhooks and policies that objects of
// admissionregistration.k8s.io configure, and the built-in plugins LimitRanger and
// PodSecurity. It completes new pods. The plugins are the Kubernetes library's; this
// package follows the configurations, says which requests need them, and asks on
// behalf of the collector.
//
// [Chain.Selects] keeps requests fast that no webhook and no policy selects: they never
// reach the plugins. Configurations are followed by watches, so a change takes effect some
// milliseconds after it is committed, as in Kubernetes.
package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatinghook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatinghook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/proxy"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/kind"
)

// Config holds the dependencies of a Chain.
type Config struct {
	Client     *rest.Config // reaches this server, as the server itself
	Get        Getter       // reads the store
	Kinds      *kind.Registry
	Authorizer authorizer.Authorizer // decides for the CEL variable "authorizer"
	NoAccounts bool                  // leaves pods without their ServiceAccount's token
}

// Chain is the ordered list of plugins. The library's handlers call it through the
// embedded interface. It is safe for concurrent use.
type Chain struct {
	admission.Interface
	informers informers.SharedInformerFactory
	selected  selections
	builtin   builtinRules
	pods      podPlugin
	policies  policyPlugin
	pretended pretended
	stop      chan struct{}

	converters *conversion.CRConverterFactory
}

var _ admission.MutationInterface = (*Chain)(nil)
var _ admission.ValidationInterface = (*Chain)(nil)

// New builds the chain. It does no I/O; Run follows the configurations.
func New(c Config) (*Chain, error) {
	client, err := kubernetes.NewForConfig(c.Client)
	if err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(c.Client)
	if err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	chain := &Chain{stop: make(chan struct{})}
	chain.informers = factory{informers.NewSharedInformerFactory(client, 0), &chain.pretended}
	services, err := newServiceResolver(chain.informers)
	if err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	if chain.converters, err = conversion.NewCRConverterFactory(services, limitAnswers); err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	chain.builtin, chain.pods = newBuiltin(chain.informers), newPodPlugin(c, chain.informers)
	shared := initializer.New(client, dynamicClient, chain.informers, c.Authorizer, utilfeature.DefaultFeatureGate, nil, chain.stop, mapper{kinds: c.Kinds})
	initializers := admission.PluginInitializers{shared, services, &chain.policies}
	chain.selected.hooks = newHooks(initializers, chain.selectsRequest)
	chain.Interface, err = plugins(chain.selected.hooks).NewFromPlugins(order, noConfig{}, initializers, nil)
	if err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	return chain, chain.selected.follow(chain.informers)
}

// order is the order of Kubernetes: what changes an object comes before what judges the
// result.
var order = []string{limitRangerName, podSecurityName, mutating.PluginName, mutatinghook.PluginName, validating.PluginName, validatinghook.PluginName}

func plugins(h hooks) *admission.Plugins {
	all := admission.NewPlugins()
	registerLimitRanger(all)
	registerPodSecurity(all)
	mutating.Register(all)
	validating.Register(all)
	all.Register(mutatinghook.PluginName, func(io.Reader) (admission.Interface, error) { return h.mutating, nil })
	all.Register(validatinghook.PluginName, func(io.Reader) (admission.Interface, error) { return h.validating, nil })
	return all
}

// noConfig gives each plugin its default settings.
type noConfig struct{}

func (noConfig) ConfigFor(string) (io.Reader, error) { return nil, nil }

// serviceResolver finds the address of a webhook's Service among the endpoints that this
// server stores. Cluster IPs lead nowhere: no proxy runs here.
type serviceResolver struct {
	services corelisters.ServiceLister
	slices   proxy.EndpointSliceGetter
}

func newServiceResolver(f informers.SharedInformerFactory) (serviceResolver, error) {
	slices, err := proxy.NewEndpointSliceIndexerGetter(f.Discovery().V1().EndpointSlices())
	return serviceResolver{f.Core().V1().Services().Lister(), slices}, err
}

// Initialize implements admission.PluginInitializer: webhooks get the resolver, and a
// limit of their answers.
func (r serviceResolver) Initialize(plugin admission.Interface) {
	if hook, ok := plugin.(interface {
		SetServiceResolver(webhookutil.ServiceResolver)
	}); ok {
		hook.SetServiceResolver(r)
	}
	if hook, ok := plugin.(interface {
		SetAuthenticationInfoResolverWrapper(webhookutil.AuthenticationInfoResolverWrapper)
	}); ok {
		hook.SetAuthenticationInfoResolverWrapper(limitAnswers)
	}
}

func (r serviceResolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return proxy.ResolveEndpoint(r.services, r.slices, namespace, name, port)
}

// NewConverter builds the converter of a definition with a conversion webhook. Its Service
// is found as those of the other webhooks are. One call takes at most 30 seconds.
func (c *Chain) NewConverter(crd *apiextensionsv1.CustomResourceDefinition) (copying, changing runtime.ObjectConvertor, err error) {
	return c.converters.NewConverter(crd)
}

// Run follows the configurations until the context ends.
func (c *Chain) Run(ctx context.Context) error {
	c.informers.Start(ctx.Done())
	<-ctx.Done()
	close(c.stop)
	c.informers.Shutdown()
	return nil
}

// policyPlugin is the plugin of the validating policies.
type policyPlugin struct{ *validating.Plugin }

// Initialize implements admission.PluginInitializer: it keeps the plugin.
func (p *policyPlugin) Initialize(plugin admission.Interface) {
	if policies, ok := plugin.(*validating.Plugin); ok {
		p.Plugin = policies
	}
}

// Judge asks the validating policies alone: they read the request and have no effects.
func (c *Chain) Judge(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return c.policies.Validate(ctx, a, o)
}

// Ready says why the chain cannot decide yet, or nil.
func (c *Chain) Ready() error {
	if c.selected.ready() {
		return nil
	}
	return errors.New("the configurations of webhooks and policies are not read yet")
}

// Admit completes a new pod, and lets LimitRanges, webhooks and policies change an object.
func (c *Chain) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := c.pods.admit(ctx, a); err != nil {
		return err
	}
	if !c.applies(a) {
		return nil
	}
	return c.Interface.(admission.MutationInterface).Admit(ctx, a, o)
}

// Validate lets plugins, webhooks and policies refuse a request.
func (c *Chain) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := c.pods.validateClass(a); err != nil {
		return err
	}
	if !c.applies(a) {
		return nil
	}
	return c.Interface.(admission.ValidationInterface).Validate(ctx, a, o)
}

func (c *Chain) applies(a admission.Attributes) bool {
	return c.selectsRequest(a) || c.SelectsIn(a.GetNamespace(), a.GetResource().GroupResource(), a.GetOperation())
}

func (c *Chain) selectsRequest(a admission.Attributes) bool {
	return c.Selects(a.GetResource().GroupResource(), a.GetSubresource(), a.GetOperation())
}

// maxAnswer limits the answer of a webhook, in bytes, in addition to four times its
// request: a conversion may make objects larger.
const maxAnswer = 16 << 20

// limitAnswers limits what the clients of webhooks read. The library reads an answer to
// its end, into memory.
func limitAnswers(next webhookutil.AuthenticationInfoResolver) webhookutil.AuthenticationInfoResolver {
	limited := func(c *rest.Config, err error) (*rest.Config, error) {
		if err == nil {
			c = rest.CopyConfig(c)
			c.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return inflight.Answers{RoundTripper: rt, Most: maxAnswer, Times: 4}
			})
		}
		return c, err
	}
	return &webhookutil.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*rest.Config, error) { return limited(next.ClientConfigFor(hostPort)) },
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			return limited(next.ClientConfigForService(name, namespace, port))
		},
	}
}

// mapper finds the resource of a kind among the served kinds. Policies need it for the
// kind of their parameters.
type mapper struct {
	meta.RESTMapper // nil if the plugins call RESTMapping alone
	kinds           *kind.Registry
}

func (m mapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	k, ok := m.kinds.Snapshot().OfGroupKind(gk)
	if !ok || k.Ephemeral || k.Source != nil {
		return nil, &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions}
	}
	scope := meta.RESTScopeRoot
	if k.Namespaced {
		scope = meta.RESTScopeNamespace
	}
	for _, v := range k.Versions {
		if len(versions) == 0 || slices.Contains(versions, v.GVK.Version) {
			return &meta.RESTMapping{Resource: v.Resource(), GroupVersionKind: v.GVK, Scope: scope}, nil
		}
	}
	return nil, &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions}
}
