package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// client sends questions to a server, and resolves the names of its kinds.
type client struct {
	rest      rest.Interface
	mapper    meta.RESTMapper
	kinds     []*restmapper.APIGroupResources
	namespace string
}

// open connects to the server and reads its kinds.
func (t *target) open() (*client, error) {
	config, err := t.restConfig()
	if err != nil {
		return nil, err
	}
	c := &client{}
	if c.namespace, err = t.currentNamespace(); err != nil {
		return nil, err
	}
	known, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	if c.kinds, err = restmapper.GetAPIGroupResources(known); err != nil {
		return nil, fmt.Errorf("read the server's kinds: %w", err)
	}
	c.mapper = restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(c.kinds), known, nil)
	c.rest, err = rest.UnversionedRESTClientFor(config)
	return c, err
}

// subject is an object as an argument names it. kind is any name that kubectl
// accepts: "deploy", "deployments", "Deployment", "deployments.v1.apps".
type subject struct{ kind, name string }

func (s subject) String() string { return s.kind + "/" + s.name }

var versionPart = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// groupKind splits the kind: deployment.v1.apps gives "deployment" and "apps/v1".
// Without a version, as in deployment.apps, the version is v1: the server accepts
// any.
func (s subject) groupKind() (kind, apiVersion string) {
	kind, group, grouped := strings.Cut(s.kind, ".")
	if !grouped {
		return kind, ""
	}
	if first, rest, ok := strings.Cut(group, "."); ok && versionPart.MatchString(first) {
		return kind, rest + "/" + first
	}
	return kind, group + "/v1"
}

// parseSubjects reads the objects that the arguments of a command name, as
// kubectl reads them: KIND/NAME..., or KIND NAME...
func parseSubjects(args []string) ([]subject, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("name an object: KIND/NAME, for instance deployment/web")
	}
	if len(args) > 1 && args[0] != "" && !strings.Contains(args[0], "/") {
		return ofOneKind(args[0], args[1:])
	}
	var out []subject
	for _, arg := range args {
		kind, name, _ := strings.Cut(arg, "/")
		if kind == "" || name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("%q is not KIND/NAME: say deployment/web, or deployment web", arg)
		}
		out = append(out, subject{kind, name})
	}
	return out, nil
}

func ofOneKind(kind string, names []string) ([]subject, error) {
	var out []subject
	for _, name := range names {
		if name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("%q is not the name of a %s: after a KIND come names without a slash", name, kind)
		}
		out = append(out, subject{kind, name})
	}
	return out, nil
}

// oneSubject is parseSubjects for a command that takes one object.
func oneSubject(args []string) (subject, error) {
	all, err := parseSubjects(args)
	if err != nil {
		return subject{}, err
	}
	if len(all) > 1 {
		return subject{}, fmt.Errorf("%s and %s: name one object", all[0], all[1])
	}
	return all[0], nil
}

// resolve returns the apiVersion, kind and namespace of a subject.
func (c *client) resolve(s subject) (v1.ObjectReference, error) {
	var ref v1.ObjectReference
	mapping, err := c.mappingFor(s.kind)
	if err != nil {
		return ref, err
	}
	gvk := mapping.GroupVersionKind
	ref.APIVersion, ref.Kind, ref.Name = gvk.GroupVersion().String(), gvk.Kind, s.name
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		ref.Namespace = c.namespace
	}
	return ref, nil
}

func (c *client) mappingFor(kind string) (*meta.RESTMapping, error) {
	gvk, err := c.kindFor(strings.ToLower(kind))
	if err != nil {
		return nil, err
	}
	return c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
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

// noKindError says that the server does not serve a kind of this name.
type noKindError string

func (e noKindError) Error() string {
	return fmt.Sprintf("the server has no kind %q: kubectl api-resources lists its kinds", string(e))
}

// askEach asks about each object that the arguments name, and prints all answers.
// If one question fails, it prints the answers to the others and returns the error.
func (t *target) askEach(cmd *cobra.Command, o *output, args []string, ask func(*client, v1.ObjectReference) (document, error)) error {
	subjects, err := parseSubjects(args)
	if err != nil {
		return err
	}
	c, err := t.open()
	if err != nil {
		return err
	}
	var answers []document
	for _, s := range subjects {
		ref, failed := c.resolve(s)
		var d document
		if failed == nil {
			d, failed = ask(c, ref)
		}
		if d.value != nil {
			answers = append(answers, d)
		}
		err = errors.Join(err, failed)
	}
	if len(answers) > 0 {
		err = errors.Join(o.printAll(cmd.OutOrStdout(), answers), err)
	}
	return err
}

// ask posts a question and decodes the answer into the same object.
func (c *client) ask(ctx context.Context, resource string, question any) error {
	return send(ctx, c.rest, request{method: http.MethodPost, path: archivePath + "/" + resource, body: question}, question)
}

// question is a command that sends one request to the server and prints the answer.
type question struct {
	target
	output
}

// ask completes a command: it adds the flags, sends the request that the arguments make, and prints the
// answer. show says how a T is printed for people, and which names it has.
func ask[T any](q *question, cmd *cobra.Command, makeRequest func(args []string) (request, error), show func(*T) document, formats ...string) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := makeRequest(args)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := q.do(cmd.Context(), r, &raw); err != nil {
			return err
		}
		var answer T
		if err := json.Unmarshal(raw, &answer); err != nil {
			return fmt.Errorf("read the server's answer: %w", err)
		}
		d := show(&answer)
		d.value = raw
		return q.print(cmd.OutOrStdout(), d)
	}
	q.addServerFlags(cmd)
	q.addFlag(cmd, formats...)
	return cmd
}

// inText prints an answer for people that has no names.
func inText[T any](write func(*T, *printer)) func(*T) document {
	return func(answer *T) document { return document{text: func(p *printer) { write(answer, p) }} }
}
