package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"

	foresightv1 "github.com/exeunt/exeunt/foresight/v1"
)

// target is where the server is that a command asks, and the namespace that it
// asks about.
type target struct {
	kubeconfig, context, namespace string
	plugin                         bool // run by kubectl: its users' files, and none of ours
}

func (t *target) addFlags(cmd *cobra.Command) {
	t.addServerFlags(cmd)
	cmd.Flags().StringVarP(&t.namespace, "namespace", "n", "", "namespace of the object (default: that of the kubeconfig)")
}

// addServerFlags are the flags of a command that asks about no namespace.
func (t *target) addServerFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	t.plugin = program(os.Args) == pluginName || program(os.Args) == completeName
	f.StringVar(&t.kubeconfig, "kubeconfig", "", "`file` that leads to the server (default: $KUBECONFIG, then ./data/kubeconfig, then ~/.kube/config)")
	f.StringVar(&t.context, "context", "", "context of the kubeconfig to use")
}

// config reads the kubeconfig that the flags, the environment or the directory
// lead to.
func (t *target) config() (clientcmd.ClientConfig, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: t.kubeconfig}
	local, own := filepath.Join("data", "kubeconfig"), filepath.Join(homedir.HomeDir(), clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
	switch env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); {
	case t.kubeconfig != "":
	case env != "":
		rules.Precedence = filepath.SplitList(env)
	case !t.plugin && exists(local):
		rules.ExplicitPath = local
	case exists(own):
		rules.ExplicitPath = own
	default:
		return nil, errors.New("no kubeconfig: give --kubeconfig, set $KUBECONFIG, or run beside data/kubeconfig")
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: t.context}), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// client asks a server. Names are resolved as it knows them.
type client struct {
	rest      rest.Interface
	mapper    meta.RESTMapper
	namespace string
}

// open connects to the server and learns its kinds.
func (t *target) open() (*client, error) {
	loader, err := t.config()
	if err != nil {
		return nil, err
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	c := &client{}
	if c.namespace, err = t.currentNamespace(); err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	groups, err := restmapper.GetAPIGroupResources(kinds)
	if err != nil {
		return nil, fmt.Errorf("learn the server's kinds: %w", err)
	}
	c.mapper = restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), kinds, nil)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c.rest, err = rest.UnversionedRESTClientFor(config)
	return c, err
}

// resolve reads KIND/NAME, where KIND is any name that kubectl would take:
// "deploy", "deployments", "Deployment", "deployments.v1.apps".
func (c *client) resolve(argument string) (foresightv1.ObjectReference, error) {
	var ref foresightv1.ObjectReference
	kind, name, found := strings.Cut(argument, "/")
	if !found || kind == "" || name == "" || strings.Contains(name, "/") {
		return ref, fmt.Errorf("%q is not KIND/NAME", argument)
	}
	gvk, err := c.kindFor(strings.ToLower(kind))
	if err != nil {
		return ref, err
	}
	mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return ref, err
	}
	ref.APIVersion, ref.Kind, ref.Name = gvk.GroupVersion().String(), gvk.Kind, name
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		ref.Namespace = c.namespace
	}
	return ref, nil
}

func (c *client) kindFor(name string) (schema.GroupVersionKind, error) {
	full, resource := schema.ParseResourceArg(name)
	if full != nil {
		if gvk, err := c.mapper.KindFor(*full); err == nil {
			return gvk, nil
		}
	}
	gvk, err := c.mapper.KindFor(resource.WithVersion(""))
	if meta.IsNoMatchError(err) {
		return gvk, noKindError(name)
	}
	return gvk, err
}

// noKindError is the name of a kind that the server does not serve.
type noKindError string

func (e noKindError) Error() string { return fmt.Sprintf("the server has no kind %q", string(e)) }

// ask creates a question and reads the answer into the same object.
func (c *client) ask(ctx context.Context, resource string, question any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	path := "/apis/" + foresightv1.GroupVersion.String() + "/" + resource
	result := c.rest.Post().AbsPath(path).SetHeader("Content-Type", "application/json").
		SetHeader("Accept", "application/json").Body(body).Do(ctx)
	return answer(result, question)
}

// named is an object as people say it: "Deployment web in namespace shop".
func named(ref foresightv1.ObjectReference) string {
	text := ref.Kind + " " + ref.Name
	if ref.Namespace != "" {
		text += " in namespace " + ref.Namespace
	}
	return text
}
