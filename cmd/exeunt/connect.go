package main

import (
	"encoding/json"
	"fmt"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// connect makes a client for paths of our own choice. It does not learn the
// server's kinds first: the server resolves names itself where this is used.
func (t *target) connect() (rest.Interface, error) {
	loader, err := t.config()
	if err != nil {
		return nil, err
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.QPS = -1 // the server knows how to refuse
	return rest.UnversionedRESTClientFor(config)
}

// currentNamespace is the one that was named, or the kubeconfig's.
func (t *target) currentNamespace() (string, error) {
	if t.namespace != "" {
		return t.namespace, nil
	}
	loader, err := t.config()
	if err != nil {
		return "", err
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return "", fmt.Errorf("read kubeconfig: %w", err)
	}
	return namespace, nil
}

// answer reads what the server said. A refusal has the text of its Status.
func answer(result rest.Result, into any) error {
	if err := result.Error(); err != nil {
		return err
	}
	data, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
