package archive

import (
	"context"
	"time"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// archivedTable is what `kubectl get archivedobjects` shows.
type archivedTable struct{}

var archivedColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The uid that the object had."},
	{Name: "Kind", Type: "string", Description: "The kind of the object."},
	{Name: "Object", Type: "string", Description: "The name of the object."},
	{Name: "Removed", Type: "string", Description: "How long ago it was removed."},
	{Name: "Expires", Type: "string", Description: "In what time its cascade leaves the archive, whole."},
	{Name: "Requested By", Type: "string", Description: "The client whose delete began the cascade."},
	{Name: "Actor", Type: "string", Description: "The user that deleted it: the client, or a controller that continued the cascade."},
	{Name: "Cascade", Type: "string", Description: "The id that all objects removed by one delete share."},
}

// ConvertToTable shows one archived object or a list.
func (archivedTable) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return kind.NewTable(obj, options, archivedColumns, kind.Cells(func(o *v1.ArchivedObject) []any {
		age := duration.HumanDuration(time.Since(o.Spec.RemovedAt.Time))
		return []any{o.Name, o.Spec.Kind, o.Spec.Name, age, v1.Left(o.Spec.ExpiresAt), o.Spec.RequestedBy, o.Spec.Actor, o.Spec.Cascade}
	}))
}

// cascadeTable is what `kubectl get cascades` shows.
type cascadeTable struct{}

var cascadeColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The id of the cascade."},
	{Name: "Kind", Type: "string", Description: "The kind of the object that it began with."},
	{Name: "Object", Type: "string", Description: "The name of that object."},
	{Name: "Requested By", Type: "string", Description: "The client whose delete began it."},
	{Name: "State", Type: "string", Description: "running, held, ended, partly restored or restored."},
	{Name: "Removed", Type: "integer", Description: "How many objects are gone."},
	{Name: "Remaining", Type: "integer", Description: "How many are known that have to follow."},
	{Name: "Bytes", Type: "integer", Description: "The size of the removed objects."},
	{Name: "Expires", Type: "string", Description: "In what time it leaves the archive, whole."},
	{Name: "Age", Type: "string", Description: "How long ago it began."},
}

// ConvertToTable shows one cascade or a list.
func (cascadeTable) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return kind.NewTable(obj, options, cascadeColumns, kind.Cells(func(c *v1.Cascade) []any {
		return []any{
			c.Name, c.Spec.Root.Kind, c.Spec.Root.Name, c.Spec.RequestedBy, string(c.Status.State), c.Status.Removed, c.Status.Remaining, c.Status.Bytes,
			v1.Left(c.Status.ExpiresAt), duration.HumanDuration(time.Since(c.Spec.StartedAt.Time)),
		}
	}))
}

// restoreTable is what `kubectl get restores` shows.
type restoreTable struct{}

var restoreColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name of the Restore."},
	{Name: "Phase", Type: "string", Description: "Running, Waiting, Complete or Incomplete."},
	{Name: "Created", Type: "integer", Description: "How many objects were created."},
	{Name: "Skipped", Type: "integer", Description: "How many were skipped."},
	{Name: "Failed", Type: "integer", Description: "How many could not be restored."},
	{Name: "Waiting", Type: "integer", Description: "How many wait for what is being deleted."},
	{Name: "Age", Type: "string", Description: "How long ago it was asked for."},
}

// ConvertToTable shows one Restore or a list.
func (restoreTable) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return kind.NewTable(obj, options, restoreColumns, kind.Cells(func(r *v1.Restore) []any {
		s := r.Status
		return []any{r.Name, string(s.Phase), int64(s.Created), int64(s.Skipped), int64(s.Failed), int64(s.Waiting), duration.HumanDuration(time.Since(r.CreationTimestamp.Time))}
	}))
}
