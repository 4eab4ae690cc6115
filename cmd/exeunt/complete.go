package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	about "github.com/exeunt/exeunt/deletion"
	"github.com/exeunt/exeunt/registry/collect"
)

// Completion asks the server while a person waits for it. The server has
// completionPatience to answer, and at most completionMost values are proposed.
// Without an answer nothing is proposed.
const (
	completionPatience = 2 * time.Second
	completionMost     = 500
)

// completer proposes values for an argument or a flag.
type completer = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// complete sets the completion of a flag. It panics if the flag does not exist:
// the first test that builds the command finds that.
func complete(cmd *cobra.Command, flag string, c completer) {
	if err := cmd.RegisterFlagCompletionFunc(flag, c); err != nil {
		panic(err)
	}
}

// words proposes fixed values.
func words(values ...string) completer {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// proposals returns the values that begin with the typed text, sorted. A tab
// separates a value from its description. Values that are not one line of text are left out.
func proposals(values []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	values = slices.DeleteFunc(values, func(v string) bool {
		value, _, _ := strings.Cut(v, "\t")
		return !strings.HasPrefix(v, toComplete) || about.Printable(value) != value
	})
	slices.Sort(values)
	return slices.Compact(values), cobra.ShellCompDirectiveNoFileComp
}

// nothing proposes no values, and no file names either.
func nothing() ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// propose proposes what values returns within the deadline of one completion. If it fails, it
// proposes nothing.
func propose(cmd *cobra.Command, toComplete string, values func(context.Context) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	found, err := values(ctx)
	if err != nil {
		return nothing()
	}
	return proposals(found, toComplete)
}

// briefly returns a target with a deadline for each request.
func (t *target) briefly() *target {
	brief := *t
	brief.timeout = completionPatience
	return &brief
}

func (t *target) completeContexts(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return propose(cmd, toComplete, func(context.Context) ([]string, error) {
		files, _, err := t.files()
		if err != nil {
			return nil, err
		}
		raw, err := loader(files, "").RawConfig()
		return slices.Collect(maps.Keys(raw.Contexts)), err
	})
}

// ask proposes what values returns, which asks a server.
func (t *target) ask(cmd *cobra.Command, toComplete string, values func(context.Context, rest.Interface) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	return propose(cmd, toComplete, func(ctx context.Context) ([]string, error) {
		server, err := t.briefly().connect()
		if err != nil {
			return nil, err
		}
		return values(ctx, server)
	})
}

// askKinds is ask for values that depend on the server's kinds.
func (t *target) askKinds(cmd *cobra.Command, toComplete string, values func(context.Context, *client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	return propose(cmd, toComplete, func(ctx context.Context) ([]string, error) {
		c, err := t.briefly().open()
		if err != nil {
			return nil, err
		}
		return values(ctx, c)
	})
}

func (t *target) completeNamespaces(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	all := *t
	all.namespace = "" // it is incomplete while the user types
	return all.ask(cmd, toComplete, func(ctx context.Context, server rest.Interface) ([]string, error) {
		return listNames(ctx, server, "/api/v1/namespaces")
	})
}

// listNames returns the names of a collection's objects.
func listNames(ctx context.Context, server rest.Interface, path string) ([]string, error) {
	var list metav1.PartialObjectMetadataList
	err := answer(server.Get().AbsPath(path).Param("limit", fmt.Sprint(completionMost)).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx), &list)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}

// completeObjects proposes kinds, then names of that kind: as KIND/NAME after a
// slash, otherwise as further arguments.
func (t *target) completeObjects(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return t.completeSubjects(cmd, args, toComplete, func(ctx context.Context, c *client, kind string) ([]string, error) {
		mapping, err := c.mappingFor(kind)
		if err != nil {
			return nil, err
		}
		return listNames(ctx, c.rest, c.collection(mapping))
	})
}

// completeArchived is completeObjects for objects in the archive.
func (t *target) completeArchived(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return t.completeSubjects(cmd, args, toComplete, func(ctx context.Context, c *client, kind string) ([]string, error) {
		page, err := archivePage(ctx, c.rest, t.namespace, (&archiveFilter{kind: kind}).selector(), completionMost, "")
		var names []string
		for i := range page.Items {
			names = append(names, page.Items[i].Spec.Name)
		}
		return names, err
	})
}

func (t *target) completeSubjects(cmd *cobra.Command, args []string, toComplete string, names func(context.Context, *client, string) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	return t.askKinds(cmd, toComplete, func(ctx context.Context, c *client) (values []string, err error) {
		kind, prefix := "", ""
		switch typed, _, slash := strings.Cut(toComplete, "/"); {
		case slash:
			kind, prefix = typed, typed+"/"
		case len(args) > 0 && !strings.Contains(args[0], "/"):
			kind = args[0]
		default:
			return c.kindNames(), nil
		}
		found, err := names(ctx, c, kind)
		for _, name := range found {
			if !slices.Contains(args, name) { // an argument is not proposed twice
				values = append(values, prefix+name)
			}
		}
		return values, err
	})
}

func (t *target) completeKinds(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return t.askKinds(cmd, toComplete, func(_ context.Context, c *client) ([]string, error) { return c.kindNames(), nil })
}

// kindNames returns the kinds whose objects can be listed and deleted. If two
// groups have a kind of the same name, the names include the group.
func (c *client) kindNames() []string {
	groups := map[string][]string{}
	for _, g := range c.kinds {
		for _, r := range g.VersionedResources[g.Group.PreferredVersion.Version] {
			if !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") {
				name := strings.ToLower(r.Kind)
				groups[name] = append(groups[name], g.Group.Name)
			}
		}
	}
	var out []string
	for name, in := range groups {
		for _, group := range in {
			if len(in) > 1 && group != "" {
				out = append(out, name+"."+group)
			} else {
				out = append(out, name)
			}
		}
	}
	return out
}

// collection returns the path that lists the objects of a kind.
func (c *client) collection(m *meta.RESTMapping) string {
	path := "/apis/" + m.Resource.GroupVersion().String()
	if m.Resource.Group == "" {
		path = "/api/" + m.Resource.Version
	}
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		path += "/namespaces/" + c.namespace
	}
	return path + "/" + m.Resource.Resource
}

// completeFinalizers proposes an object, then its finalizers.
func (t *target) completeFinalizers(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	s, err := oneSubject(args)
	if err != nil {
		return t.completeObjects(cmd, args, toComplete)
	}
	return t.askKinds(cmd, toComplete, func(ctx context.Context, c *client) ([]string, error) {
		mapping, err := c.mappingFor(s.kind)
		if err != nil {
			return nil, err
		}
		var o metav1.PartialObjectMetadata
		err = answer(c.rest.Get().AbsPath(c.collection(mapping)+"/"+s.name).Do(ctx), &o)
		return o.Finalizers, err
	})
}

// completeCascades proposes the cascades in the archive, each with the object
// that it began with.
func (t *target) completeCascades(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return t.ask(cmd, toComplete, func(ctx context.Context, server rest.Interface) (values []string, err error) {
		ids := map[string]string{}
		page, err := archivePage(ctx, server, t.namespace, "", completionMost, "")
		for i := range page.Items { // the last row of a cascade is its first removal, which began it
			if s := page.Items[i].Spec; s.Cascade != "" {
				ids[s.Cascade] = fmt.Sprintf("%s %s, %s ago", s.Kind, s.Name, duration.HumanDuration(time.Since(s.RemovedAt.Time)))
			}
		}
		for id, text := range ids {
			values = append(values, id+"\t"+text)
		}
		return values, err
	})
}

// completeEvents proposes the events of the registry, each with its delay.
func (t *target) completeEvents(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nothing()
	}
	return t.ask(cmd, toComplete, func(ctx context.Context, server rest.Interface) (values []string, err error) {
		var stats collect.Stats
		err = answer(server.Get().AbsPath(registryGCPath).Do(ctx), &stats)
		for event, delay := range stats.ReviewAfter {
			values = append(values, event+"\treviewed after "+delay)
		}
		return values, err
	})
}

// completeTokens proposes the ids of tokens that can be revoked.
func (t *target) completeTokens(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nothing()
	}
	return t.ask(cmd, toComplete, func(ctx context.Context, server rest.Interface) (values []string, err error) {
		var list v1alpha1.TokenList
		err = answer(server.Get().AbsPath(v1alpha1.TokensPath).Do(ctx), &list)
		for _, token := range list.Items {
			if token.State == "issued" {
				values = append(values, token.ID+"\tproject "+token.Project)
			}
		}
		return values, err
	})
}
