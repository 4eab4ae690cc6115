package v1

import "k8s.io/kube-openapi/pkg/validation/spec"

// The OpenAPI schemas of the queries, for kubectl explain and validation. A test
// compares them with the Go types.

func text(description string) spec.Schema {
	return *spec.StringProperty().WithDescription(description)
}

func number(description string) spec.Schema {
	return *spec.Int64Property().WithDescription(description)
}

func flag(description string) spec.Schema {
	return *spec.BoolProperty().WithDescription(description)
}

func moment(description string) spec.Schema {
	return *spec.DateTimeProperty().WithDescription(description)
}

func choice(description string, values ...string) spec.Schema {
	s := spec.StringProperty().WithDescription(description)
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return *s
}

func listOf(description string, items spec.Schema) spec.Schema {
	return *spec.ArrayProperty(&items).WithDescription(description)
}

func structure(description string, properties map[string]spec.Schema, required ...string) spec.Schema {
	s := new(spec.Schema).Typed("object", "").WithDescription(description).WithRequired(required...)
	s.Properties = properties
	return *s
}

// refer describes an ObjectReference, with more properties.
func refer(description string, more map[string]spec.Schema, required ...string) spec.Schema {
	properties := map[string]spec.Schema{
		"apiVersion": text("Group and version of the object's kind."),
		"kind":       text("Kind of the object."),
		"namespace":  text("Namespace of the object, if its kind is namespaced."),
		"name":       text("Name of the object."),
		"uid":        text("Uid of the object. Enough alone; together with a name, both must match."),
	}
	for name, s := range more {
		properties[name] = s
	}
	return structure(description, properties, required...)
}

func actionSchema(description string) spec.Schema {
	return choice(description, "Delete", "Orphan", "Keep", "Block", "Wait")
}

// DeletionPreviewSchema is the schema of DeletionPreview.
func DeletionPreviewSchema() *spec.Schema {
	item := refer("One object that the deletion touches.", map[string]spec.Schema{
		"action":     actionSchema("What becomes of it."),
		"reason":     text("Why, for people."),
		"finalizers": listOf("Finalizers that others have to remove before it can go.", *spec.StringProperty()),
		"owner":      text("Uid of the item that causes this one, if any: its owner, namespace or definition."),
		"owners": listOf("The owners that its metadata names, at most 20.", structure("An owner.", map[string]spec.Schema{
			"apiVersion": text("Group and version of the owner's kind."),
			"kind":       text("Kind of the owner."),
			"name":       text("Name of the owner."),
			"uid":        text("Uid of the owner."),
			"blocked":    flag("Whether a foreground deletion of the owner waits for the object."),
		}, "kind", "name", "uid")),
		"uncertain": flag("Whether the result depends on the order of the collector's reviews; the action is the slower result."),
	}, "action", "reason")
	count := structure("How many objects of a kind have an action.", map[string]spec.Schema{
		"apiVersion": text("Group and version of the kind."),
		"kind":       text("The kind."),
		"action":     actionSchema("The action."),
		"count":      number("How many."),
	}, "kind", "action", "count")
	s := structure("DeletionPreview asks what a delete would do, and does nothing. The answer is in status; nothing is stored.", map[string]spec.Schema{
		"spec": structure("The delete to preview.", map[string]spec.Schema{
			"object": refer("The object to delete: by uid, or by apiVersion, kind, name and namespace.", nil),
			"propagationPolicy": choice("What becomes of the dependents. Left out, what a delete without it would mean.",
				"Background", "Foreground", "Orphan"),
			"gracePeriodSeconds": number("The grace period of the delete."),
			"countsOnly":         flag("Leave out the items."),
			"limit":              number("The most items of one answer: 500 if 0, at most 10,000."),
			"continue":           text("status.continue of the previous answer."),
		}, "object"),
		"status": structure("The answer.", map[string]spec.Schema{
			"object":          refer("The object that was found.", nil),
			"action":          actionSchema("What becomes of the object itself."),
			"refused":         text("The error that the server would answer the delete with; then nothing is deleted. Empty: the delete is accepted."),
			"judges":          listOf("The webhooks and policies whose rules select deletes of a kind that goes. The policies have been asked about the object itself.", text("What may refuse.")),
			"resourceVersion": text("The state of the database that was looked at."),
			"total":           number("How many objects are touched."),
			"counts":          listOf("How many, by kind and action.", count),
			"blockers":        listOf("The oldest 100 of the objects that block.", item),
			"blockersTotal":   number("How many objects block."),
			"items":           listOf("The objects, the oldest first, of this page.", item),
			"continue":        text("The token of the next page; empty: this is the last one."),
			"guard": structure("The guard's decision. Absent: no limit applies.", map[string]spec.Schema{
				"limit":     number("How many objects a deletion may remove without confirmation, the object itself included."),
				"namespace": text("The namespace whose limit it is, if the deletion enters it from outside and would remove more of its objects."),
				"deletes":   number("How many objects the deletion removes. Events are not counted."),
				"holds":     flag("Whether the deletion waits, or would wait, for confirmation."),
			}, "limit", "deletes", "holds"),
			"hidden":    number("How many items of this page are left out because the client may not get them."),
			"truncated": flag("Whether the cascade is larger than a preview follows."),
		}),
	}, "spec")
	return &s
}

// reasonSchema nests as deep as a report; below that, children have no schema.
func reasonSchema(depth int) spec.Schema {
	child := *new(spec.Schema).Typed("object", "").WithDescription("A reason of the same form.")
	if depth > 0 {
		child = reasonSchema(depth - 1)
	} else {
		child.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	}
	return structure("One reason why the object still exists.", map[string]spec.Schema{
		"type":     text("The type of the reason, such as Finalizer, BlockingDependents or Review."),
		"message":  text("The reason, for people."),
		"object":   refer("What the reason is about, if not the object itself.", nil),
		"manager":  text("The field manager that set the finalizer, from managedFields."),
		"since":    moment("When it began to be a reason."),
		"resolve":  text("What to do about it."),
		"children": listOf("The reasons of this reason.", child),
	}, "type", "message")
}

// DeletionReportSchema is the schema of DeletionReport.
func DeletionReportSchema() *spec.Schema {
	s := structure("DeletionReport asks why an object or namespace still exists. The answer is in status; nothing is stored.", map[string]spec.Schema{
		"spec": structure("What to report on: an object, or a namespace.", map[string]spec.Schema{
			"object":    refer("The object: by uid, or by apiVersion, kind, name and namespace.", nil),
			"namespace": text("Short for the object that is the Namespace of this name."),
		}),
		"status": structure("The answer.", map[string]spec.Schema{
			"object":          refer("The object that was found.", nil),
			"exists":          flag("Whether it exists."),
			"state":           choice("Where in its life it is.", "DOES_NOT_EXIST", "ACTIVE", "DELETING"),
			"resourceVersion": text("The state of the database that was looked at."),
			"remaining":       number("How many objects must be removed first: dependents, content of the namespace, objects of the definition."),
			"reasons":         listOf("All the reasons; those that need an action come first.", reasonSchema(2)),
			"truncated":       flag("Whether there are more reasons than listed."),
		}),
	}, "spec")
	return &s
}
