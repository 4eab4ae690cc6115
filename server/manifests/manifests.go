// Package manifests applies the objects in files to a server, and keeps a directory of such files and the server in
// step: what is in the directory is applied, and what has left it is deleted.
//
// It promises:
//
//   - It deletes only what it has applied before, as the ConfigMap exeunt-manifests in kube-system says, and what its
//     field manager still has fields of. The ConfigMap names an object before that is applied, so a crash forgets none.
//   - A file that cannot be read, or a directory without objects, deletes nothing.
//   - A replica applies at its start and when its own files change, and repeats only what failed. So replicas with
//     different files do not fight: the last change counts.
//
// It knows the server as any client does. Begin with [Keeper].
package manifests

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// Manager is the manager of the fields that files set.
const Manager = "exeunt-manifests"

// mostBytes bounds what is read of a directory.
const mostBytes = 64 << 20

// Read reads the objects in a file, or in the files of a directory and those below it that end in .yaml, .yml or .json and
// do not begin with a dot, in the order of their names.
func Read(path string) (all []*unstructured.Unstructured, err error) {
	size := 0
	err = filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != path && strings.HasPrefix(e.Name(), "."):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir(), name != path && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			return nil
		}
		content, err := readFile(name, int64(mostBytes-size)+1)
		if err != nil {
			return err
		}
		if size += len(content); size > mostBytes {
			return fmt.Errorf("the files in %s have more than %d bytes", path, mostBytes)
		}
		if err := decode(content, &all); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int { return cmp.Compare(rank(a), rank(b)) })
	return all, err
}

// readFile reads a file, not more than a limit. A pipe would have no end.
func readFile(name string, limit int64) ([]byte, error) {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, fmt.Errorf("%s is not a regular file", name))
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}

// rank is the place of an object in the order: what others need comes first.
func rank(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "Namespace":
		return 0
	case "CustomResourceDefinition":
		return 1
	}
	return 2
}

func decode(content []byte, all *[]*unstructured.Unstructured) error {
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(o.Object) == 0: // comments only
			continue
		}
		add := func(item runtime.Object) error {
			o := item.(*unstructured.Unstructured)
			if o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "" {
				return errors.New("an object needs apiVersion, kind and metadata.name")
			}
			*all = append(*all, o)
			return nil
		}
		if o.IsList() {
			err = o.EachListItem(add)
		} else {
			err = add(o)
		}
		if err != nil {
			return err
		}
	}
}

// Client applies objects to a server.
type Client struct {
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

// NewClient makes a client. It does no I/O.
func NewClient(config *rest.Config) (*Client, error) {
	known, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &Client{mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(known))}
	c.dynamic, err = dynamic.NewForConfig(config)
	return c, err
}

// at returns the client for the resource of an object, in its namespace.
func (c *Client) at(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		return nil, err
	}
	resources := c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return resources, nil
	}
	return resources.Namespace(cmp.Or(o.GetNamespace(), metav1.NamespaceDefault)), nil
}

// Apply applies an object, by server-side apply, and takes fields from other managers.
func (c *Client) Apply(ctx context.Context, o *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	to, err := c.at(o)
	if err != nil {
		return nil, err
	}
	options := metav1.ApplyOptions{FieldManager: Manager, Force: true}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return to.Apply(ctx, o.GetName(), o, options)
}

// Diff returns an object as it is, nil if it does not exist, and as it would be after Apply.
func (c *Client) Diff(ctx context.Context, o *unstructured.Unstructured) (now, then *unstructured.Unstructured, err error) {
	from, err := c.at(o)
	if err != nil {
		return nil, nil, err
	}
	now, err = from.Get(ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		now, err = nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	then, err = c.Apply(ctx, o, true)
	return now, then, err
}

// remove deletes an object that Apply made, if it still has its manager.
func (c *Client) remove(ctx context.Context, o *unstructured.Unstructured) error {
	from, err := c.at(o)
	if meta.IsNoMatchError(err) {
		return nil // its definition is gone, and it with it
	}
	if err != nil {
		return err
	}
	now, err := from.Get(ctx, o.GetName(), metav1.GetOptions{})
	if err == nil && now.GetDeletionTimestamp() == nil && managed(now) {
		uid, background := now.GetUID(), metav1.DeletePropagationBackground
		err = from.Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func managed(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == Manager })
}

// Name is an object for people.
func Name(o *unstructured.Unstructured) string {
	name := strings.ToLower(o.GetKind()) + "/" + o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + " " + name
	}
	return name
}
