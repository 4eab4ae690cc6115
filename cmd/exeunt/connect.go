package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// connection is how a command finds the server: as kubectl does.
type connection struct {
	kubeconfig, context, namespace string
}

func (c *connection) addFlags(cmd *cobra.Command, namespaceUsage string) {
	f := cmd.Flags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "`file` that leads to the server (default: $KUBECONFIG, as kubectl reads it)")
	f.StringVar(&c.context, "context", "", "context of the kubeconfig")
	f.StringVarP(&c.namespace, "namespace", "n", "", namespaceUsage)
}

func (c *connection) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.context})
}

// currentNamespace is the one that was named, or the context's.
func (c *connection) currentNamespace() (string, error) {
	if c.namespace != "" {
		return c.namespace, nil
	}
	namespace, _, err := c.config().Namespace()
	if err != nil {
		return "", fmt.Errorf("read kubeconfig: %w", err)
	}
	return namespace, nil
}

// client talks JSON to any path. Refusals come back as Status errors.
func (c *connection) client() (rest.Interface, error) {
	config, err := c.config().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.QPS = -1 // the server knows how to refuse
	return rest.UnversionedRESTClientFor(config)
}

// answer reads what the server said.
func answer(result rest.Result, into any) error {
	data, err := result.Raw()
	if err != nil {
		if refused := result.Error(); refused != nil {
			return refused // with the text of its Status
		}
		return err
	}
	return json.Unmarshal(data, into)
}
