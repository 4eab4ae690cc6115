package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"

	"github.com/exeunt/exeunt/cmd/exeunt/explain"
	about "github.com/exeunt/exeunt/deletion"
)

// target has the flags that select a server and a namespace. Every command that
// sends requests finds its server through it.
type target struct {
	kubeconfig, context, namespace string
	plugin                         bool          // run by kubectl, which does not look for ./data/kubeconfig
	timeout                        time.Duration // for each request; 0 means none
}

func (t *target) addFlags(cmd *cobra.Command) {
	t.addServerFlags(cmd)
	t.addNamespaceFlag(cmd, "namespace of the object (default: that of the kubeconfig)")
}

func (t *target) addNamespaceFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVarP(&t.namespace, "namespace", "n", "", usage)
	complete(cmd, "namespace", t.completeNamespaces)
}

// addServerFlags adds the flags of a command without a namespace.
func (t *target) addServerFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	t.plugin = program(os.Args) == pluginName || program(os.Args) == completeName
	f.StringVar(&t.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the server (default: $KUBECONFIG, then ./data/kubeconfig, then ~/.kube/config)")
	f.StringVar(&t.context, "context", "", "context of the kubeconfig to use")
	complete(cmd, "context", t.completeContexts)
}

const getKubeconfig = `"exeunt serve" writes one to data/kubeconfig: name it with --kubeconfig FILE`

// files returns the kubeconfigs to read, and the flag or variable that names them.
func (t *target) files() (files []string, by string, err error) {
	local, own := filepath.Join("data", "kubeconfig"), filepath.Join(homedir.HomeDir(), clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
	env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	switch {
	case t.kubeconfig != "":
		files, by = []string{t.kubeconfig}, "--kubeconfig"
	case env != "":
		files, by = filepath.SplitList(env), "$KUBECONFIG"
	case !t.plugin && exists(local):
		return []string{local}, "", nil
	case exists(own):
		return []string{own}, "", nil
	case t.plugin:
		return nil, "", fmt.Errorf("no kubeconfig: $KUBECONFIG is not set, and %s does not exist; %s", own, getKubeconfig)
	default:
		return nil, "", fmt.Errorf("no kubeconfig: $KUBECONFIG is not set, and neither %s nor %s exists; %s", local, own, getKubeconfig)
	}
	if !slices.ContainsFunc(files, exists) {
		return nil, "", fmt.Errorf("%s names %s, which does not exist; %s", by, strings.Join(files, ", "), getKubeconfig)
	}
	return files, by, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// loaded is a kubeconfig, and its name for messages.
type loaded struct {
	clientcmd.ClientConfig
	file    string // for people
	context string
}

// load reads the kubeconfig that the flags, the environment or the working
// directory select, and chooses the context.
func (t *target) load() (*loaded, error) {
	files, by, err := t.files()
	if err != nil {
		return nil, err
	}
	l := &loaded{file: strings.Join(files, ", "), context: t.context}
	if by != "" {
		l.file += " (" + by + ")"
	}
	l.ClientConfig = loader(files, t.context)
	raw, err := l.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", l.file, err)
	}
	l.context = cmp.Or(l.context, raw.CurrentContext)
	known := strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", ")
	switch {
	case known == "":
		return nil, fmt.Errorf("kubeconfig %s has no contexts; %s", l.file, getKubeconfig)
	case l.context == "":
		return nil, fmt.Errorf("kubeconfig %s has no current-context: choose one with --context: %s", l.file, known)
	case raw.Contexts[l.context] == nil:
		return nil, fmt.Errorf("context %q does not exist in kubeconfig %s: choose one with --context: %s", l.context, l.file, known)
	}
	return l, nil
}

func loader(files []string, context string) clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: files}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
}

// rest returns the client configuration. Requests that do not reach the server
// fail with an *explain.ConnectError.
func (l *loaded) rest() (*rest.Config, error) {
	config, err := l.ClientConfig.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", l.file, err)
	}
	config.Wrap(explain.Transport(fmt.Sprintf("the server %s (context %q of %s)", config.Host, l.context, l.file)))
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.QPS, config.UserAgent = -1, "exeunt" // no limit in the client: the server limits requests
	return config, nil
}

// restConfig loads the kubeconfig and returns its client configuration.
func (t *target) restConfig() (*rest.Config, error) {
	l, err := t.load()
	if err != nil {
		return nil, err
	}
	config, err := l.rest()
	if err == nil && t.timeout > 0 {
		config.Timeout = t.timeout
	}
	return config, err
}

// connect returns a client for absolute paths. It does not read the server's kinds:
// the server resolves the names that its users send.
func (t *target) connect() (rest.Interface, error) {
	config, err := t.restConfig()
	if err != nil {
		return nil, err
	}
	return rest.UnversionedRESTClientFor(config)
}

// currentNamespace returns the namespace of the flag, or of the kubeconfig.
func (t *target) currentNamespace() (string, error) {
	if t.namespace != "" {
		return t.namespace, nil
	}
	l, err := t.load()
	if err != nil {
		return "", err
	}
	namespace, _, err := l.Namespace()
	if err != nil {
		return "", fmt.Errorf("read kubeconfig %s: %w", l.file, err)
	}
	return namespace, nil
}

// request is a request to a path of the server.
type request struct {
	method, path string
	parameters   map[string]string
	body         any                 // is sent as JSON; nil is none
	patch        types.PatchType     // of the body, if the request patches
	warnings     rest.WarningHandler // gets the server's warnings; nil prints them
}

// do connects to the server, sends a request and decodes the response.
func (t *target) do(ctx context.Context, q request, into any) error {
	server, err := t.connect()
	if err != nil {
		return err
	}
	return send(ctx, server, q, into)
}

// send sends a request and decodes the response.
func send(ctx context.Context, server rest.Interface, q request, into any) error {
	if path.Clean(q.path) != q.path { // "", "..", and others lead to another object, or to a collection
		return fmt.Errorf("%s %s: an argument is not the name of an object", q.method, q.path)
	}
	r := server.Verb(q.method).AbsPath(q.path)
	if q.warnings != nil {
		r = r.WarningHandler(q.warnings)
	}
	for name, value := range q.parameters {
		r = r.Param(name, value)
	}
	if q.body != nil {
		body, err := json.Marshal(q.body)
		if err != nil {
			return err
		}
		r = r.SetHeader("Content-Type", cmp.Or(string(q.patch), "application/json")).Body(body)
	}
	return answer(r.Do(ctx), into)
}

// answer decodes the response. The error of a refused request has the message of
// its Status.
func answer(result rest.Result, into any) error {
	if err := result.Error(); err != nil {
		if refused, ok := errors.AsType[*apierrors.StatusError](err); ok {
			refused.ErrStatus.Message = about.Printable(refused.ErrStatus.Message)
		}
		return err
	}
	data, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
