package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// writers is how many requests a revert sends concurrently: those that wait share a commit.
const writers = 64

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
		err := concurrently(ctx, writers, len(step.all), func(i int) (err error) {
			if !timeUp() {
				done[i], err = step.do(ctx, step.all[i])
			}
			return err
		})
		late := errors.Is(ctx.Err(), context.DeadlineExceeded) // what a write that took too long did is found by the next pass
		if err != nil && !late {
			return nil, false, err
		}
		for _, result := range done {
			if result.Outcome != "" {
				results = append(results, result)
			}
		}
		if late || timeUp() {
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
	m, err := r.metadata(ctx, d, latest)
	if err != nil {
		return result, err
	}
	live, err := object.ParseMeta(latest.Body)
	if err != nil {
		return result, err
	}
	// Only owners are added: another client may have changed the rest since, or given the object other owners.
	owners := m.OwnerReferences
	foreign := slices.ContainsFunc(live.OwnerReferences, func(o metav1.OwnerReference) bool { return !has(owners, o.UID) })
	if foreign || len(owners) == len(live.OwnerReferences) {
		return result, nil
	}
	live.OwnerReferences = owners
	is := difference{d.version, latest, d.then}
	next, err := wireWith(d.version, latest, latest.Body, live)
	if err == nil {
		_, err = r.write(ctx, &is, http.MethodPut, "", next)
	}
	if err != nil {
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
	var then []byte
	is, err := r.atVersion(ctx, d, func(latest object.Object) ([]byte, error) {
		m, err := r.metadata(ctx, d, latest)
		if err != nil {
			return nil, err
		}
		if then, err = wireWith(d.version, latest, d.then.Body, m); err != nil {
			return nil, apierrors.NewBadRequest("what it was cannot be read by the definition of now: " + err.Error())
		}
		r.store.Cache(latest) // the request reads it next
		return r.write(ctx, d, http.MethodPut, "", then)
	})
	if err == nil && d.version.Status != nil && r.spec.WithStatus {
		is, err = r.replaceStatus(ctx, d, is, then)
	}
	if err != nil {
		return refusedWrite(d, err)
	}
	result := resultFor(d, v1.Changed, "")
	if result.Changes, err = v1.Differences(now, is); err != nil {
		return v1.RestoreResult{}, err
	}
	if d.version.Status != nil && !r.spec.WithStatus { // another client may have changed it
		result.Changes = slices.DeleteFunc(result.Changes, func(c v1.Change) bool { return c.Field == "status" || strings.HasPrefix(c.Field, "status.") })
	}
	if len(result.Changes) == 0 {
		return v1.RestoreResult{}, nil
	}
	r.hideSealed(d.now.Kind, result.Changes)
	if r.many {
		result.Changes = result.Changes[:min(len(result.Changes), shownOfMany)]
	}
	return result, nil
}

// replaceStatus sends the status of then, if that differs, and returns the answer to the update with the new status.
func (r *restoration) replaceStatus(ctx context.Context, d *difference, answer, then []byte) ([]byte, error) {
	var is, was, reported map[string]any
	if err := errors.Join(utiljson.Unmarshal(answer, &is), utiljson.Unmarshal(then, &was)); err != nil || reflect.DeepEqual(is["status"], was["status"]) {
		return answer, err
	}
	next := map[string]any{"apiVersion": is["apiVersion"], "kind": is["kind"], "metadata": is["metadata"], "spec": is["spec"]}
	if status, had := was["status"]; had {
		next["status"] = status
	}
	text, err := json.Marshal(next)
	if err == nil {
		text, err = r.write(ctx, d, http.MethodPut, "status", text)
	}
	if err == nil {
		err = utiljson.Unmarshal(text, &reported)
	}
	if err != nil {
		return nil, err
	}
	is["status"] = reported["status"]
	return json.Marshal(is)
}

// atVersion sends a write of an object at the version of the plan. A client that changed only the status, the finalizers or
// the owners meanwhile, such as the restore of an owner, is no conflict: the write is sent again, at the new version.
func (r *restoration) atVersion(ctx context.Context, d *difference, send func(now object.Object) ([]byte, error)) ([]byte, error) {
	now := d.now
	for attempt := 1; ; attempt++ {
		is, err := send(now)
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
		now = latest
	}
}

// metadata is that of now with the labels, the annotations and the owners of then, as far as these exist. Finalizers are
// not reverted: the client that set one may be done, and would not remove one that comes back.
func (r *restoration) metadata(ctx context.Context, d *difference, now object.Object) (m metav1.ObjectMeta, err error) {
	if m, err = object.ParseMeta(now.Body); err != nil {
		return m, err
	}
	var was metav1.ObjectMeta
	for name, field := range map[string]any{"labels": &was.Labels, "annotations": &was.Annotations, "ownerReferences": &was.OwnerReferences} {
		if value := gjson.GetBytes(d.then.Body, "metadata."+name); value.Exists() {
			if err := json.Unmarshal([]byte(value.Raw), field); err != nil {
				return m, err
			}
		}
	}
	for _, mark := range []string{lifecycle.ConfirmCascade, lifecycle.HeldAbove} {
		delete(was.Annotations, mark) // of a deletion then
	}
	m.Labels, m.Annotations, m.OwnerReferences = was.Labels, was.Annotations, nil
	for _, o := range was.OwnerReferences {
		there, err := r.exists(ctx, o, now.Namespace)
		if err != nil {
			return m, err
		}
		if there {
			m.OwnerReferences = append(m.OwnerReferences, o)
		}
	}
	return m, nil
}

func (r *restoration) deleteOne(ctx context.Context, d *difference) (v1.RestoreResult, error) {
	is, err := r.atVersion(ctx, d, func(now object.Object) ([]byte, error) {
		version := now.ResourceVersion()
		options := metav1.DeleteOptions{
			TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
			Preconditions: &metav1.Preconditions{UID: &now.UID, ResourceVersion: &version},
		}
		if r.spec.DryRun {
			options.DryRun = []string{metav1.DryRunAll} // a delete with a body does not read the query
		}
		text, err := json.Marshal(options)
		if err != nil {
			return nil, err
		}
		return r.write(ctx, d, http.MethodDelete, "", text)
	})
	if apierrors.IsConflict(err) {
		if latest, getErr := r.store.Get(ctx, d.now.Key); object.Is(getErr, object.NotFound) || getErr == nil && latest.UID != d.now.UID {
			err = nil
		}
	}
	if err != nil && !apierrors.IsNotFound(err) { // the deletion of another one may have taken it along
		return refusedWrite(d, err)
	}
	result := resultFor(d, v1.Deleted, "")
	result.NewUID = ""
	if waits := gjson.GetBytes(is, "metadata.finalizers").Array(); len(waits) > 0 && gjson.GetBytes(is, "kind").Str != "Status" {
		result.Reason = fmt.Sprintf("it is being deleted, and waits for %v", waits)
	}
	return result, nil
}

// write sends one request as the client.
func (r *restoration) write(ctx context.Context, d *difference, method, subresource string, body []byte) ([]byte, error) {
	if r.client.Write == nil {
		return nil, errors.New("the client cannot write: it is none of a request")
	}
	return r.client.Write(ctx, kind.Write{
		Method: method, Version: d.version, Key: d.now.Key, Subresource: subresource, Body: body, DryRun: r.spec.DryRun, Manager: revertManager, RequestID: r.operation,
	})
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
func wireOf(v *kind.Version, o object.Object) ([]byte, error) {
	if v.Raw {
		return v.AppendWire(nil, object.WirePrefix(v.GVK), o), nil
	}
	obj, err := v.Decode(o.Body, o.ResourceVersion())
	if err != nil {
		return nil, err
	}
	return json.Marshal(obj)
}

// wireWith is a body with other metadata, as an update of an object of now. The server keeps the managed fields that it has.
func wireWith(v *kind.Version, now object.Object, body []byte, m metav1.ObjectMeta) ([]byte, error) {
	m.ManagedFields = nil
	body, err := object.WithMeta(body, m)
	if err != nil {
		return nil, err
	}
	now.Body = body
	return wireOf(v, now)
}
