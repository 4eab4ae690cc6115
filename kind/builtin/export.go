package builtin

import (
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/exeunt/exeunt/kind"
)

// Wire returns the codecs of built-in objects. They include Scale, the /scale subresource
// of kinds in all groups.
func Wire() *kind.Wire { return wire() }

// ScaleTable returns the table of the Scale of a resource.
func ScaleTable(resource schema.GroupResource) rest.TableConvertor {
	return newConvertor(resource, table[*autoscalingv1.Scale]{
		columns: columns(
			number("Desired", "How many replicas are wanted."),
			number("Available", "How many replicas there are."),
		),
		row: func(s *autoscalingv1.Scale, now time.Time) []any {
			return []any{s.Name, int64(s.Spec.Replicas), int64(s.Status.Replicas), age(s, now)}
		},
	})
}
