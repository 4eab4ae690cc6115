package builtin

import (
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func flowSchemaTable() table[*flowcontrolv1.FlowSchema] {
	return table[*flowcontrolv1.FlowSchema]{
		columns: append(columns(
			text("PriorityLevel", "The priority level of its requests."),
			text("MatchingPrecedence", "The schema with the lowest number wins."),
			text("DistinguisherMethod", "What tells flows of the schema apart."),
		), text("MissingPL", "Whether the priority level does not exist.")),
		row: func(s *flowcontrolv1.FlowSchema, now time.Time) []any {
			method, missing := none, "?"
			if s.Spec.DistinguisherMethod != nil {
				method = string(s.Spec.DistinguisherMethod.Type)
			}
			for _, c := range s.Status.Conditions {
				if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
					missing = string(c.Status)
				}
			}
			return []any{s.Name, s.Spec.PriorityLevelConfiguration.Name, int64(s.Spec.MatchingPrecedence), method, age(s, now), missing}
		},
	}
}

func priorityLevelTable() table[*flowcontrolv1.PriorityLevelConfiguration] {
	return table[*flowcontrolv1.PriorityLevelConfiguration]{
		columns: columns(
			text("Type", "Exempt or Limited."),
			text("NominalConcurrencyShares", "Its share of the requests that are served at once."),
			text("Queues", "The number of queues."),
			text("HandSize", "The number of queues that one flow may use."),
			text("QueueLengthLimit", "How many requests wait in one queue."),
		),
		row: func(c *flowcontrolv1.PriorityLevelConfiguration, now time.Time) []any {
			var shares, queues, hand, length any = none, none, none, none
			if limited := c.Spec.Limited; limited != nil {
				shares = int64(deref(limited.NominalConcurrencyShares, 0))
				if q := limited.LimitResponse.Queuing; q != nil {
					queues, hand, length = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
				}
			}
			return []any{c.Name, string(c.Spec.Type), shares, queues, hand, length, age(c, now)}
		},
	}
}

// migrationTable has no age, as in Kubernetes.
func migrationTable() table[*storagemigrationv1.StorageVersionMigration] {
	return table[*storagemigrationv1.StorageVersionMigration]{
		columns: named(
			text("Resource", "The resource whose objects are stored again."),
			text("Status", "How far the migration is."),
		),
		row: func(m *storagemigrationv1.StorageVersionMigration, _ time.Time) []any {
			status := "Unknown"
			for _, c := range m.Status.Conditions {
				if c.Status == metav1.ConditionTrue {
					status = c.Type
				}
			}
			return []any{m.Name, m.Spec.Resource.String(), status}
		},
	}
}
