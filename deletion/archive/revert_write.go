package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// revert updates, then deletes: an update may take an owner that goes from an object that stays. It returns the results
// until timeUp.
func (r *restoration) revert(ctx context.Context, todo *reversal, timeUp func() bool) (results []v1.RestoreResult, interrupted bool, err error) {
	results = slices.Clone(todo.failed)
	r.many = len(todo.changes) > groupSize
	for _, step := range []struct {
		all []*difference
		do  func(context.Context, *difference) (v1.RestoreResult, error)
	}{{todo.created, r.rejoin}, {todo.changes, r.changeOne}, {todo.deletes, r.deleteOne}} {
		done := make([]v1.RestoreResult, len(step.all))
		err := concurrently(ctx, preparers, len(step.all), func(i int) (err error) {
			if !timeUp() {
				done[i], err = step.do(ctx, step.all[i])
			}
			return err
		})
		if err != nil {
			return nil, false, err
		}
		for _, result := range done {
			if result.Outcome != "" {
				results = append(results, result)
			}
		}
		if timeUp() {
			return results, true, nil
		}
	}
	return results, false, nil
}

// rejoin gives an object that was created the owners that were created after it, as in a ring of owners. Only the
// transactions of what has a row in the archive do so by themselves.
func (r *restoration) rejoin(ctx context.Context, d *difference) (result v1.RestoreResult, err error) {
	if r.spec.DryRun {
		return result, nil
	}
	latest, err := r.store.Get(ctx, d.then.Key)
	if object.Is(err, object.NotFound) {
		return result, nil
	}
	if err != nil || latest.UID != d.then.UID {
		return result, err
	}
	is := difference{d.version, latest, d.then}
	now, err := wireOf(d.version, latest)
	if err != nil {
		return result, err
	}
	m, err := r.metadata(ctx, &is, now)
	if err != nil {
		return result, err
	}
	live, err := object.ParseMeta(latest.Body)
	if err != nil {
		return result, err
	}
	// Only owners are added: another client may have changed the rest since, or given the object other owners.
	owners := m["ownerReferences"].([]metav1.OwnerReference)
	foreign := slices.ContainsFunc(live.OwnerReferences, func(o metav1.OwnerReference) bool { return !has(owners, o.UID) })
	if foreign || len(owners) == len(live.OwnerReferences) {
		return result, nil
	}
	now["metadata"].(map[string]any)["ownerReferences"] = owners
	if _, err := r.write(ctx, &is, http.MethodPut, "", now); err != nil {
		return refusedWrite(&is, err)
	}
	return result, nil
}

// changeOne updates an object. It has no outcome if the rules of its kind leave nothing to change.
func (r *restoration) changeOne(ctx context.Context, d *difference) (v1.RestoreResult, error) {
	now, err := wireOf(d.version, d.now)
	if err != nil {
		return resultFor(d, v1.Failed, err.Error()), nil
	}
	then, err := wireOf(d.version, d.then)
	if err != nil {
		return resultFor(d, v1.Failed, "what it was cannot be read by the definition of now: "+err.Error()), nil
	}
	status, hadStatus := then["status"]
	m, err := r.metadata(ctx, d, now)
	if err != nil {
		return v1.RestoreResult{}, err
	}
	then["metadata"] = m
	is, err := r.replace(ctx, d, then)
	if err == nil && d.version.Status != nil && r.spec.WithStatus && !reflect.DeepEqual(is["status"], status) {
		next := map[string]any{"apiVersion": is["apiVersion"], "kind": is["kind"], "metadata": is["metadata"], "spec": is["spec"]}
		if hadStatus {
			next["status"] = status
		}
		var reported map[string]any
		if reported, err = r.write(ctx, d, http.MethodPut, "status", next); err == nil {
			is["status"] = reported["status"]
		}
	}
	if err != nil {
		return refusedWrite(d, err)
	}
	if d.version.Status != nil && !r.spec.WithStatus {
		delete(now, "status")
		delete(is, "status")
	}
	result := resultFor(d, v1.Changed, "")
	if result.Changes, err = differences(now, is); err != nil || len(result.Changes) == 0 {
		return v1.RestoreResult{}, err
	}
	r.hideSealed(d.now.Kind, result.Changes)
	if r.many {
		result.Changes = result.Changes[:min(len(result.Changes), shownOfMany)]
	}
	return result, nil
}

// replace sends the new state. Who changed only the status, the finalizers or the owners meanwhile, such as the restore of
// an owner, is no conflict.
func (r *restoration) replace(ctx context.Context, d *difference, next map[string]any) (map[string]any, error) {
	for attempt := 1; ; attempt++ {
		is, err := r.write(ctx, d, http.MethodPut, "", next)
		if !apierrors.IsConflict(err) || attempt == maxAttempts {
			return is, err
		}
		latest, getErr := r.store.Get(ctx, d.now.Key)
		if getErr != nil || latest.UID != d.now.UID {
			return nil, err
		}
		if same, compareErr := sameState(difference{now: d.now, then: latest}, false, false); compareErr != nil || !same {
			return nil, err
		}
		wire, wireErr := wireOf(d.version, latest)
		if wireErr != nil {
			return nil, wireErr
		}
		m, metaErr := r.metadata(ctx, d, wire)
		if metaErr != nil {
			return nil, metaErr
		}
		next["metadata"] = m
	}
}

func differences(was, is map[string]any) ([]v1.Change, error) {
	before, err := json.Marshal(was)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(is)
	if err != nil {
		return nil, err
	}
	return v1.Differences(before, after)
}

// metadata is that of now with the labels, the annotations and the owners of then, as far as these exist. Finalizers are
// not reverted: the client that set one may be done, and would not remove one that comes back.
func (r *restoration) metadata(ctx context.Context, d *difference, now map[string]any) (map[string]any, error) {
	was, err := object.ParseMeta(d.then.Body)
	if err != nil {
		return nil, err
	}
	old, _ := now["metadata"].(map[string]any)
	m := make(map[string]any, len(old))
	for field, value := range old {
		m[field] = value
	}
	delete(m, "managedFields") // the server keeps those that it has
	for _, mark := range []string{lifecycle.ConfirmCascade, lifecycle.HeldAbove} {
		delete(was.Annotations, mark) // of a deletion then
	}
	m["labels"], m["annotations"] = was.Labels, was.Annotations
	owners := []metav1.OwnerReference{}
	for _, o := range was.OwnerReferences {
		there, err := r.exists(ctx, o, d.now.Namespace)
		if err != nil {
			return nil, err
		}
		if there {
			owners = append(owners, o)
		}
	}
	m["ownerReferences"] = owners
	return m, nil
}

func (r *restoration) deleteOne(ctx context.Context, d *difference) (v1.RestoreResult, error) {
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]any{"uid": string(d.now.UID)}}
	if r.spec.DryRun {
		options["dryRun"] = []string{metav1.DryRunAll} // a delete with a body does not read the query
	}
	is, err := r.write(ctx, d, http.MethodDelete, "", options)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the deletion of another one took it along
		err = nil
	}
	if err != nil {
		return refusedWrite(d, err)
	}
	result := resultFor(d, v1.Deleted, "")
	result.NewUID = ""
	m, _ := is["metadata"].(map[string]any)
	if waits, _ := m["finalizers"].([]any); len(waits) > 0 && is["kind"] != "Status" {
		result.Reason = fmt.Sprintf("it is being deleted, and waits for %v", waits)
	}
	return result, nil
}

// write sends one request as the client.
func (r *restoration) write(ctx context.Context, d *difference, method, subresource string, body map[string]any) (answer map[string]any, err error) {
	if r.client.Write == nil {
		return nil, errors.New("the client cannot write: it is none of a request")
	}
	w := kind.Write{
		Method: method, Version: d.version, Key: d.now.Key, Subresource: subresource, DryRun: r.spec.DryRun, Manager: revertManager, RequestID: r.operation,
	}
	if w.Body, err = json.Marshal(body); err != nil {
		return nil, err
	}
	text, err := r.client.Write(ctx, w)
	if err != nil {
		return nil, err
	}
	return answer, utiljson.Unmarshal(text, &answer)
}

// refusedWrite is the result of a refused request. What may pass by itself is an error of the server.
func refusedWrite(d *difference, err error) (v1.RestoreResult, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err) {
		return v1.RestoreResult{}, err
	}
	reason := status.Status().Message
	if apierrors.IsConflict(err) {
		reason = "it was changed meanwhile: revert again. " + reason
	}
	return resultFor(d, v1.Failed, reason), nil
}

// wireOf is a stored object as clients of a version see it.
func wireOf(v *kind.Version, o object.Object) (wire map[string]any, err error) {
	obj, err := v.Decode(o.Body, o.ResourceVersion())
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return wire, utiljson.Unmarshal(text, &wire)
}
