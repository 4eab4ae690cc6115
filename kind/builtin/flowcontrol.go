package builtin

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
)

// flowWarning says what the kinds are worth here: clients that manage them work, and
// nothing follows from them.
const flowWarning = "this server stores flow control objects and does not apply them: its clients share the limit of --max-requests-inflight equally"

func flowControlKinds() []*kind.Kind {
	return []*kind.Kind{
		def[flowcontrolv1.FlowSchema, *flowcontrolv1.FlowSchema]{
			gv: flowcontrolv1.SchemeGroupVersion, plural: "flowschemas", cluster: true,
			parts:      func(s *flowcontrolv1.FlowSchema) (any, any) { return &s.Spec, &s.Status },
			generation: true,
			validate:   validateFlowSchema,
			warn:       func(*flowcontrolv1.FlowSchema) []string { return []string{flowWarning} },
			table:      flowSchemaTable,
		}.kind(),
		def[flowcontrolv1.PriorityLevelConfiguration, *flowcontrolv1.PriorityLevelConfiguration]{
			gv: flowcontrolv1.SchemeGroupVersion, plural: "prioritylevelconfigurations", cluster: true,
			parts:      func(c *flowcontrolv1.PriorityLevelConfiguration) (any, any) { return &c.Spec, &c.Status },
			generation: true,
			validate:   validatePriorityLevel,
			warn:       func(*flowcontrolv1.PriorityLevelConfiguration) []string { return []string{flowWarning} },
			table:      priorityLevelTable,
		}.kind(),
	}
}

func migrationKinds() []*kind.Kind {
	return []*kind.Kind{def[storagemigrationv1.StorageVersionMigration, *storagemigrationv1.StorageVersionMigration]{
		gv: storagemigrationv1.SchemeGroupVersion, plural: "storageversionmigrations", cluster: true,
		conditional: true,
		parts: func(m *storagemigrationv1.StorageVersionMigration) (any, any) {
			return &m.Spec, &m.Status
		},
		validate: validateMigration,
		validateUpdate: func(obj, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
			return unchanged(specPath, obj.Spec, old.Spec)
		},
		validateStatus: validateMigrationStatus,
		table:          migrationTable,
	}.kind()}
}
