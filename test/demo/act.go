package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// Item is an object in an answer of the server.
type Item struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	UID    string `json:"uid"`
	Action string `json:"action"`
}

// previewShop is the second act: the preview lists what a delete would remove.
func (p *play) previewShop(ctx context.Context) error {
	p.section("2. Before", "What would go, in which way, and what would hold it up? Asking changes nothing.")
	if _, err := p.command(ctx, "exeunt preview app/shop"); err != nil {
		return err
	}
	var preview struct{ Status struct{ Items []Item } }
	if err := p.ask(ctx, "exeunt preview app/shop -o json", &preview); err != nil {
		return err
	}
	p.record.Preview = preview.Status.Items
	var err error
	p.record.Before, err = p.snapshot(ctx)
	return errors.Join(err, p.pause(ctx))
}

// deleteShop is the third act: the shop is deleted, in order.
func (p *play) deleteShop(ctx context.Context) error {
	p.section("3. Exeunt", "The app goes at once, and what it owned follows: pods have their grace, the node leaves before its", "machine goes, and it waits for a customer.")
	app, err := p.app(ctx)
	if err != nil {
		return err
	}
	p.record.Asked = p.recorder.mark()
	if _, err := p.command(ctx, "kubectl delete app shop"); err != nil {
		return err
	}
	if err := p.awaitHeld(ctx); err != nil {
		return err
	}
	p.line("the customer hangs up, and the pods may end")
	close(p.podsMayEnd)
	if err := p.customer.Close(); err != nil {
		return err
	}
	if err := p.awaitEmpty(ctx); err != nil {
		return err
	}
	if p.record.Archived, err = p.archived(ctx, app); err != nil {
		return err
	}
	if p.record.Kept, err = p.disk(); err != nil {
		return err
	}
	p.line("the app is gone, and %d objects with it; the preview had listed %d", len(p.record.Archived)-1, len(p.record.Preview)-1)
	p.line("with the ProvisionedResource went what it had built: %s", strings.Join(p.built(), ", "))
	if err := p.unreachable(ctx); err != nil {
		return err
	}
	p.line("the images cannot be pulled, but until the archive forgets, they can come back: %s on disk", size(p.record.Kept.Bytes))
	return p.pause(ctx)
}

// built returns the kinds of removed objects that the preview did not list: a
// ProvisionedResource stands for them.
func (p *play) built() (kinds []string) {
	for _, e := range p.recorder.all() {
		listed := slices.ContainsFunc(p.record.Preview, func(i Item) bool { return i.UID == string(e.Object.GetUID()) })
		if e.Verb == watch.Deleted && !listed {
			kinds = append(kinds, e.Object.GetKind())
		}
	}
	return kinds
}

// awaitHeld waits until a finalizer holds the deletion, and asks why.
func (p *play) awaitHeld(ctx context.Context) error {
	asked := p.record.Asked
	for _, await := range []struct {
		what  string
		match func(Event) bool
	}{
		{"the node drains", func(e Event) bool {
			return e.Object.GetKind() == "MeshNode" && field(e.Object, "status", "phase") == "Draining"
		}},
		{"the pods are asked to end", func(e Event) bool { return e.Object.GetKind() == "Pod" && e.Deleting() }},
		{"the repository is gone", func(e Event) bool { return e.Object.GetKind() == "Repository" && e.Verb == watch.Deleted }},
	} {
		if _, err := p.recorder.find(ctx, asked, await.what, await.match); err != nil {
			return err
		}
	}
	var err error
	if p.record.Why, err = p.command(ctx, "exeunt why app/shop"); err != nil {
		return err
	}
	if _, err = p.command(ctx, "kubectl get pr edge -o custom-columns=NAME:.metadata.name,PHASE:.status.phase,MESSAGE:.status.message"); err != nil {
		return err
	}
	return errors.Join(talk(p.customer), p.pause(ctx)) // the customer is still served
}

// restoreShop is the fourth act: everything is restored.
func (p *play) restoreShop(ctx context.Context) error {
	p.section("4. Second thoughts", "The controllers are sent away, so that all that comes back comes from the archive.")
	for _, end := range p.endControllers {
		end()
	}
	cascade := p.record.Archived[slices.IndexFunc(p.record.Archived, func(i Item) bool { return i.Kind == "App" })].UID
	p.record.Restored = p.recorder.mark()
	if _, err := p.command(ctx, "exeunt restore --cascade "+cascade); err != nil {
		return err
	}
	var err error
	if p.record.After, err = p.snapshot(ctx); err != nil {
		return err
	}
	if err := p.pull(ctx, p.images); err != nil {
		return err
	}
	p.line("pulled %s:%v: every byte is what it was", repository, tags)
	p.startControllers(ctx)
	if err := p.awaitUp(ctx); err != nil {
		return err
	}
	for _, wait := range []string{
		"kubectl wait deployment/web --for=jsonpath={.status.observedGeneration}=1 --timeout=60s",
		"kubectl wait repository/web --for=jsonpath={.status.tags}=3 --timeout=60s",
	} {
		if _, err := p.quiet(ctx, wait); err != nil {
			return err
		}
	}
	p.record.Settled, err = p.snapshot(ctx)
	p.line("the controllers are back and find nothing to do; a new machine has joined")
	return errors.Join(err, p.pause(ctx))
}

// deleteForGood is the last act.
func (p *play) deleteForGood(ctx context.Context) error {
	p.section("5. For good", "The same again in the foreground: the app is the last to go. Then the archive forgets.")
	p.record.Again = p.recorder.mark()
	if _, err := p.command(ctx, "kubectl delete app shop --cascade=foreground"); err != nil {
		return err
	}
	if err := p.awaitEmpty(ctx); err != nil {
		return err
	}
	// The id of a restored object's next cascade is not its uid.
	cascade, err := p.quiet(ctx, "kubectl get archivedobjects --field-selector=spec.kind=App,spec.name=shop -o jsonpath={.items[0].spec.cascade}")
	if err != nil {
		return err
	}
	if _, err := p.command(ctx, "exeunt archive purge --cascade "+cascade); err != nil {
		return err
	}
	if err := p.awaitReturn(ctx); err != nil {
		return err
	}
	p.line("returned: %d tags, %d manifests, %d blobs, %s", p.record.Content.Tags, p.record.Content.Manifests, len(tags)*(layers+1),
		size(p.record.Full.Bytes-p.record.Empty.Bytes))
	return nil
}

// awaitReturn waits until the registry has restored everything, and prints its progress.
func (p *play) awaitReturn(ctx context.Context) error {
	told, at := "", time.Time{}
	return until(ctx, "the registry's bytes", func() (err error) {
		var stats struct {
			Manifests, Blobs, Unlinks struct{ Depth int }
		}
		body, err := p.kube.Discovery().RESTClient().Get().AbsPath("/exeunt/registry/gc").DoRaw(ctx)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, &stats); err != nil {
			return err
		}
		if p.record.Empty, err = p.disk(); err != nil {
			return err
		}
		left := fmt.Sprintf("%d manifests and %d blobs under review, %d files to be removed; on disk %d files, %s", stats.Manifests.Depth,
			stats.Blobs.Depth, stats.Unlinks.Depth, p.record.Empty.Files, size(p.record.Empty.Bytes))
		done := p.record.Empty.Files+stats.Manifests.Depth+stats.Blobs.Depth+stats.Unlinks.Depth == 0
		if left != told && (done || time.Since(at) > time.Second) {
			p.line("%-42s %s", "Registry", left)
			told, at = left, time.Now()
		}
		if !done {
			return errors.New(left)
		}
		return nil
	})
}

// awaitEmpty waits until only the Secret that existed before the shop is left.
func (p *play) awaitEmpty(ctx context.Context) error {
	return until(ctx, "an empty namespace", func() error {
		left, err := p.list(ctx)
		if err != nil {
			return err
		}
		var names []string
		for i := range left {
			if kind := left[i].GetKind(); kind != "Secret" || left[i].GetName() != "cloud" {
				names = append(names, kind+" "+left[i].GetName())
			}
		}
		if len(names) > 0 {
			return fmt.Errorf("left: %s", strings.Join(names, ", "))
		}
		return nil
	})
}

// pause gives readers time to read.
func (p *play) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(p.Pace):
		return nil
	}
}

// ask runs a command that answers in JSON.
func (p *play) ask(ctx context.Context, line string, answer any) error {
	out, err := p.quiet(ctx, line)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), answer); err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	return nil
}

// archived lists the objects of a cascade in the archive.
func (p *play) archived(ctx context.Context, cascade string) ([]Item, error) {
	var list struct{ Items []struct{ Spec Item } }
	err := p.ask(ctx, "exeunt archive list -o json --cascade "+cascade, &list)
	var items []Item
	for _, i := range list.Items {
		items = append(items, i.Spec)
	}
	return items, err
}

// app returns the uid of the App.
func (p *play) app(ctx context.Context) (string, error) {
	return p.quiet(ctx, "kubectl get app shop -o jsonpath={.metadata.uid}")
}

// list returns all objects of the watched kinds.
func (p *play) list(ctx context.Context) (all []unstructured.Unstructured, err error) {
	for _, resource := range watched {
		page, err := p.objects.Resource(resource).Namespace(namespace).List(ctx, shown)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
	}
	return all, nil
}

// snapshot describes the App and each of its objects: the declared fields and the owner.
// It identifies owners by name.
func (p *play) snapshot(ctx context.Context) (map[string]string, error) {
	all, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for i := range all {
		names[string(all[i].GetUID())] = all[i].GetKind() + " " + all[i].GetName()
	}
	like := map[string]string{}
	for i := range all {
		o := &all[i]
		owners := []string{}
		for _, ref := range o.GetOwnerReferences() {
			owners = append(owners, names[string(ref.UID)])
		}
		if len(owners) == 0 && o.GetKind() != "App" || o.GetKind() == "Machine" {
			continue
		}
		text, err := json.Marshal(map[string]any{
			"owners": owners, "labels": o.GetLabels(), "annotations": o.GetAnnotations(), "finalizers": o.GetFinalizers(), "spec": o.Object["spec"],
		})
		if err != nil {
			return nil, err
		}
		like[o.GetKind()+" "+o.GetName()] = string(text)
	}
	return like, nil
}

// field returns a string field of an object, or "".
func field(o *unstructured.Unstructured, path ...string) string {
	text, _, _ := unstructured.NestedString(o.Object, path...)
	return text
}
