package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// TestRevertGoesOn: a turn of a revert ends with an error of the server after some of its writes, and the next one does the
// rest. What undoes it is the version from before the first write. Reading is not limited as the writes are: it would
// begin again for ever where it takes longer.
func TestRevertGoesOn(t *testing.T) {
	eachRevert(t, func(w *world) {
		const n = 10
		label := func(value string) func(wire map[string]any) {
			return func(wire map[string]any) { wire["metadata"].(map[string]any)["labels"] = map[string]any{"is": value} }
		}
		each := func(value string) {
			for i := range n {
				w.put(fmt.Sprintf("configmaps:n/o%d", i), label(value))
			}
		}
		for i := range n {
			w.create(fmt.Sprintf("configmaps:n/o%d", i))
		}
		each("old")
		then := w.store.Revision()
		each("new")
		before := w.store.Revision()
		var writes atomic.Int64
		clientOf := func(ctx context.Context, u user.Info) kind.Client {
			c := w.Client()
			c.User, c.Name = u, u.GetName()
			authorize, write := c.Authorize, c.Write
			c.Authorize = func(verb string, r schema.GroupResource, namespace, name string) error {
				if end, limited := ctx.Deadline(); limited && time.Until(end) <= slice {
					t.Error("reading has no more time than a slice")
				}
				return authorize(verb, r, namespace, name)
			}
			c.Write = func(ctx context.Context, r kind.Write) ([]byte, error) {
				if writes.Add(1) == n/2 {
					return nil, errors.New("the database is away")
				}
				return write(ctx, r)
			}
			return c
		}
		w.stepwise(clientOf)
		spec := v1.RestoreSpec{Object: &v1.ObjectName{Kind: "namespace", Name: "n"}, To: fmt.Sprint(then)}
		w.request(clientOf(context.Background(), asUser("alice").User), "back", spec)
		for range 3 {
			w.turn()
		}
		status := w.stored("back")
		if status.Phase != v1.Complete || status.Before != fmt.Sprint(before) || writes.Load() <= n/2 {
			t.Errorf("%d writes; before is %s, not %d: %+v", writes.Load(), status.Before, before, status)
		}
		w.revertNamespace(w.Client(), before)
		for i := range n {
			if _, m := w.get(fmt.Sprintf("configmaps:n/o%d", i)); m.Labels["is"] != "new" {
				t.Errorf("%s is %q after the revert was undone", m.Name, m.Labels["is"])
			}
		}
	})
}

// TestRevertIsLate: a write is still waiting when the time of a pass is over. It ends with what it has, and not with an error:
// that would make the next one wait.
func TestRevertIsLate(t *testing.T) {
	eachRevert(t, func(w *world) {
		change := func(wire map[string]any) { wire["metadata"].(map[string]any)["labels"] = map[string]any{"is": "new"} }
		w.create("configmaps:n/a")
		w.create("configmaps:n/b")
		then := w.store.Revision()
		w.put("configmaps:n/a", change)
		w.put("configmaps:n/b", change)
		ctx := overdue{w.Context(), make(chan struct{})}
		client := w.Client()
		write, begun := client.Write, atomic.Int64{}
		written := make(chan struct{})
		client.Write = func(inner context.Context, r kind.Write) ([]byte, error) {
			if begun.Add(1) == 1 {
				defer close(written)
				return write(inner, r)
			}
			<-written
			close(ctx.over)
			<-inner.Done()
			return nil, inner.Err()
		}
		spec := v1.RestoreSpec{Object: &v1.ObjectName{Kind: "namespace", Name: "n"}, To: fmt.Sprint(then), DryRun: true}
		status, err := w.archive.Restore(ctx, client, spec)
		if err != nil || status.Complete || status.Changed != 1 {
			t.Errorf("%+v, %v", status, err)
		}
	})
}

// overdue is a context whose deadline passes when over is closed.
type overdue struct {
	context.Context
	over chan struct{}
}

func (o overdue) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

func (o overdue) Done() <-chan struct{} { return o.over }

func (o overdue) Err() error {
	select {
	case <-o.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestRevertMemory: a revert holds what differs and not what it compares, all reverts together no more than a bound, and none
// anything at its end. A client is told what to do, and a stored Restore tries again.
func TestRevertMemory(t *testing.T) {
	eachRevert(t, func(w *world) {
		const objects, size = 20, 10 << 10
		for i := range objects {
			w.createWith(fmt.Sprintf("configmaps:n/o%02d", i), func(m *metav1.ObjectMeta) {
				m.Annotations = map[string]string{"large": strings.Repeat("x", size)}
			})
		}
		then := w.store.Revision()
		label := func(wire map[string]any) { wire["metadata"].(map[string]any)["labels"] = map[string]any{"is": "new"} }
		memory := &w.archive.memory
		memory.most = leastRevert + 5*size
		w.put("configmaps:n/o07", label)
		w.put("configmaps:n/o13", label)
		spec := v1.RestoreSpec{Object: &v1.ObjectName{Kind: "namespace", Name: "n"}, To: fmt.Sprint(then), DryRun: true}
		if status, err := w.archive.Restore(w.Context(), w.Client(), spec); err != nil || status.Changed != 2 {
			t.Errorf("%d changed, error %v", status.Changed, err)
		}
		memory.used.Store(size) // of another one
		if _, err := w.archive.Restore(w.Context(), w.Client(), spec); !errors.Is(err, errBusy) {
			t.Errorf("with another revert: %v", err)
		}
		call := kind.Call{Client: w.Client()}
		if _, err := w.archive.answer(w.Context(), &v1.Restore{Spec: spec}, call); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the answer with another revert: %v", err)
		}
		memory.used.Store(0)
		w.put("configmaps:n/o01", label)
		for _, dryRun := range []bool{true, false} {
			r := &v1.Restore{Spec: spec}
			if r.Spec.DryRun = dryRun; !dryRun {
				call.Client.User = asUser("alice").User
			}
			if _, err := w.archive.answer(w.Context(), r, call); !object.Is(err, object.TooLarge) {
				t.Errorf("with three that differ: %v", err)
			}
		}
		w.stepwise(func(context.Context, user.Info) kind.Client { return w.Client() })
		memory, spec.DryRun = &w.archive.memory, false
		w.request(call.Client, "back", spec)
		if held := memory.used.Load(); held != 0 {
			t.Errorf("%d bytes are held after the request", held)
		}
		memory.used.Store(mostMemory)
		w.turn()
		if s := w.stored("back"); s.Phase != v1.Running || !strings.Contains(s.Message, "tries again") {
			t.Errorf("%+v", s)
		}
		memory.used.Store(0)
		w.turn()
		if s := w.stored("back"); s.Phase != v1.Complete || s.Changed != 3 {
			t.Errorf("%+v", s)
		}
		if held := memory.used.Load(); held != 0 {
			t.Errorf("%d bytes are held for ever", held)
		}
	})
}
