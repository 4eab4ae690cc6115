// Package apiservice keeps one APIService object for each version of a group that is
// served. Clients can only read the objects. They are stored, so that all replicas show the
// same ones and a watch has no gaps. Aggregated servers are not served.
// Begin with [Keeper.Run].
package apiservice

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	// managed tells which part of a server wrote an APIService, as in Kubernetes.
	managed     = "kube-aggregator.kubernetes.io/automanaged"
	fromProgram = "onstart" // the group version is built in
	fromCustom  = "true"    // a CustomResourceDefinition declares it

	// every is how often the objects are compared, besides after each change of the kinds.
	every = 10 * time.Second
)

var resource = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

//go:embed apiservice.yaml
var definition []byte

// Kind makes the kind APIService.
func Kind() (*kind.Kind, error) {
	k, err := custom.BuiltIn(definition)
	if err != nil {
		return nil, err
	}
	k.ReadOnly = true
	v := k.Versions[0]
	v.Strategy = rules{v.Strategy}
	return k, nil
}

// rules accepts the name of the core group's version, "v1.", which is not a DNS name.
type rules struct{ lifecycle.Strategy }

func (r rules) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	warnings, errs := r.Strategy.Create(ctx, obj)
	return warnings, slices.DeleteFunc(errs, func(err *field.Error) bool { return err.Field == "metadata.name" })
}

// Keeper writes the APIServices. Every replica runs one.
type Keeper struct {
	Writer objects.Writer
	Log    *slog.Logger
}

// Run compares the objects with the served kinds after each change of the kinds.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		kinds, changed := k.Writer.Kinds.Changed()
		k.compare(ctx, kinds, false)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(every):
		}
	}
}

// Start is the first comparison of a process. Only this one deletes the objects of built-in
// versions that this program does not have: another release may run beside it. An error
// does not stop the server: Run tries again.
func (k *Keeper) Start(ctx context.Context) {
	k.compare(ctx, k.Writer.Kinds.Snapshot(), true)
}

func (k *Keeper) compare(ctx context.Context, kinds *kind.Snapshot, starting bool) {
	if err := k.sync(ctx, kinds, starting); err != nil && ctx.Err() == nil {
		k.Log.Warn("the APIServices could not be written; the next try is in 10 seconds", "error", err)
	}
}

func (k *Keeper) sync(ctx context.Context, kinds *kind.Snapshot, starting bool) error {
	wanted := served(kinds)
	have, err := k.stored(ctx)
	if err != nil {
		return err
	}
	errs := k.create(ctx, wanted, have)
	var stale []entry
	for name, o := range have {
		if _, ok := wanted[name]; !ok && (starting || o.managed != fromProgram) {
			stale = append(stale, o)
		}
	}
	if len(stale) == 0 {
		return errors.Join(errs...)
	}
	declared, err := k.declared(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, o := range stale {
		if !declared[o.gv] {
			errs = append(errs, k.remove(ctx, o))
		}
	}
	return errors.Join(errs...)
}

// create writes what is missing, all at once: the store commits the writes together.
func (k *Keeper) create(ctx context.Context, wanted map[string]*unstructured.Unstructured, have map[string]entry) []error {
	var wait sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for name, obj := range wanted {
		if _, ok := have[name]; ok {
			continue
		}
		wait.Go(func() {
			err := task.Catch(func() error { return k.Writer.Create(ctx, resource, obj) })()
			if object.Is(err, object.AlreadyExists) || object.Is(err, object.BeingDeleted) {
				return // another replica was first
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wait.Wait()
	return errs
}

// entry is a stored APIService.
type entry struct {
	object  object.Object
	gv      schema.GroupVersion
	managed string
}

func (k *Keeper) stored(ctx context.Context) (map[string]entry, error) {
	listing, err := k.Writer.Store.List(ctx, store.ListRequest{Kind: object.APIServices})
	if err != nil {
		return nil, err
	}
	out := map[string]entry{}
	for listing.Next() {
		o := listing.Object()
		var body struct {
			Metadata metav1.ObjectMeta
			Spec     struct{ Group, Version string }
		}
		if err := json.Unmarshal(o.Body, &body); err != nil {
			return nil, err
		}
		out[o.Name] = entry{o, schema.GroupVersion(body.Spec), body.Metadata.Labels[managed]}
	}
	return out, listing.Err()
}

// declared returns the versions that the stored CustomResourceDefinitions serve. The kinds
// in memory do not decide about a removal: another replica may be ahead of this one.
func (k *Keeper) declared(ctx context.Context) (map[schema.GroupVersion]bool, error) {
	listing, err := k.Writer.Store.List(ctx, store.ListRequest{Kind: object.Definitions})
	if err != nil {
		return nil, err
	}
	found := map[schema.GroupVersion]bool{}
	for listing.Next() {
		var crd struct {
			Spec struct {
				Group    string
				Versions []struct {
					Name   string
					Served bool
				}
			}
		}
		if err := json.Unmarshal(listing.Object().Body, &crd); err != nil {
			return nil, err
		}
		for _, v := range crd.Spec.Versions {
			if v.Served {
				found[schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}] = true
			}
		}
	}
	return found, listing.Err()
}

func (k *Keeper) remove(ctx context.Context, e entry) error {
	_, err := k.Writer.Store.Delete(ctx, store.DeleteRequest{
		Key: e.object.Key, Options: metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &e.object.UID}}, Actor: k.Writer.Actor,
	})
	if object.Is(err, object.NotFound) || object.Is(err, object.Conflict) {
		return nil // another replica was first
	}
	return err
}

// Priorities, with the values that Kubernetes gives to the core group and to custom kinds.
// Discovery lists the preferred version of a group first, and so do these.
const (
	corePriority    = 18000
	builtInPriority = 17000
	customPriority  = 1000
	customVersion   = 100
	builtInVersion  = 15
)

// served returns the APIServices of all group versions, by name.
func served(kinds *kind.Snapshot) map[string]*unstructured.Unstructured {
	builtIn := map[schema.GroupVersion]bool{}
	for _, k := range kinds.Kinds {
		for _, v := range k.Versions {
			gv := v.GVK.GroupVersion()
			builtIn[gv] = builtIn[gv] || k.Definition == ""
		}
	}
	out := map[string]*unstructured.Unstructured{}
	for _, group := range kinds.Groups() {
		for i, version := range kinds.GroupVersions(group) {
			gv := schema.GroupVersion{Group: group, Version: version}
			out[version+"."+group] = service(gv, builtIn[gv], i)
		}
	}
	return out
}

// service makes the APIService of a group version; place is its place in the order of the
// group's versions.
func service(gv schema.GroupVersion, builtIn bool, place int) *unstructured.Unstructured {
	writer, groupPriority, versionPriority := fromCustom, customPriority, customVersion-place
	switch {
	case gv.Group == "":
		writer, groupPriority, versionPriority = fromProgram, corePriority, 1
	case builtIn:
		writer, groupPriority, versionPriority = fromProgram, builtInPriority, builtInVersion-place
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": "APIService",
		"metadata": map[string]any{
			"name": gv.Version + "." + gv.Group, "labels": map[string]any{managed: writer},
		},
		"spec": map[string]any{
			"group": gv.Group, "version": gv.Version, "groupPriorityMinimum": int64(groupPriority), "versionPriority": int64(versionPriority),
		},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": "Available", "status": "True", "reason": "Local", "message": "Local APIServices are always available",
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}}},
	}}
}
