package archive

import "k8s.io/kube-openapi/pkg/validation/spec"

// The OpenAPI schemas of the kinds, for kubectl explain and validation.

func text(description string) spec.Schema {
	return *spec.StringProperty().WithDescription(description)
}

func flag(description string) spec.Schema {
	return *spec.BoolProperty().WithDescription(description)
}

func number(description string) spec.Schema {
	return *spec.Int64Property().WithDescription(description)
}

// structure is an object with these fields.
func structure(description string, fields map[string]spec.Schema, required ...string) spec.Schema {
	s := new(spec.Schema).Typed("object", "").WithDescription(description).WithRequired(required...)
	for name, field := range fields {
		s.SetProperty(name, field)
	}
	return *s
}

func archivedSchema() *spec.Schema {
	original := new(spec.Schema).Typed("object", "").WithDescription("The original as it was last stored. Absent: it was not kept.")
	original.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	s := structure("ArchivedObject is an object that was removed and can still be restored. Its name is the uid of the original. Deleting it purges the original from the archive.",
		map[string]spec.Schema{
			"spec": structure("What was removed, when, by whom, and in which cascade.", map[string]spec.Schema{
				"apiVersion": text("Of the original."), "kind": text("Of the original."),
				"namespace": text("Of the original."), "name": text("Of the original."), "uid": text("Of the original."),
				"removedAt":   *spec.DateTimeProperty().WithDescription("When it was removed."),
				"expiresAt":   *spec.DateTimeProperty().WithDescription("When its cascade leaves the archive, whole, if it removes no more."),
				"requestedBy": text("The client whose delete began the cascade."),
				"requestID":   text("The Audit-Id of the delete that began the cascade. Absent: no request of the API began it."),
				"actor":       text("The user that deleted this object: the same client, or a controller that continued the cascade, such as system:garbage-collector."),
				"cascade":     text("The id that all objects removed by one delete share: the uid of the object that the client deleted, or a new id for a deleted collection."),
				"size":        number("The length of the stored object in bytes."),
			}),
			"object": *original,
		})
	return &s
}

func cascadeSchema() *spec.Schema {
	root := structure("The object that the client deleted. For a deleted collection: the first object that was removed.", map[string]spec.Schema{
		"apiVersion": text("Of the object."), "kind": text("Of the object."), "namespace": text("Of the object."), "name": text("Of the object."), "uid": text("Of the object."),
	})
	s := structure("Cascade is one deletion as a unit: the object that a client deleted, and all that left or has to leave with it. It is read-only.", map[string]spec.Schema{
		"spec": structure("What was deleted, when and by whom.", map[string]spec.Schema{
			"root": root, "requestedBy": text("The client whose delete began the cascade."),
			"requestID":     text("The Audit-Id of that delete. Absent: no request of the API began the cascade."),
			"startedAt":     *spec.DateTimeProperty().WithDescription("When the first object was marked or removed."),
			"lastRemovedAt": *spec.DateTimeProperty().WithDescription("When the last object was removed. Absent: none was."),
		}),
		"status": structure("How far it is.", map[string]spec.Schema{
			"removed":   number("How many removed objects are in the archive."),
			"remaining": number("How many objects are known that have to follow."),
			"state":     text("running, held, ended, partly restored or restored."),
			"restored":  number("How many of the removed objects were restored."),
			"bytes":     number("The size of the removed objects."),
			"purged":    number("How many objects clients purged from the archive: they cannot be restored."),
			"expiresAt": *spec.DateTimeProperty().WithDescription("When the cascade leaves the archive, whole. Absent: it has not ended."),
		}),
	})
	return &s
}

func restoreSchema() *spec.Schema {
	change := structure("A field with another value.", map[string]spec.Schema{
		"field": text("The path of the field."), "was": text("The value before, as JSON. Absent: the field is new."), "is": text("The value now. Absent: the field is gone."),
	})
	result := structure("The result for one object.", map[string]spec.Schema{
		"apiVersion": text("Of the object."), "kind": text("Of the object."), "namespace": text("Of the object."),
		"name": text("Of the object."), "uid": text("The uid that it had."), "newUID": text("The uid that it has now."),
		"outcome": text("created, skipped, failed, awaited, or called off."), "reason": text("Why it was skipped or failed."),
		"conflictsWith": text("The uid of the object that has the name now."),
		"relinked":      number("How many dependents, restored before this owner without their reference to it, got the reference back."),
		"changes":       *spec.ArrayProperty(&change).WithDescription("What differs from the object as it was when its deletion was asked for."),
		"warnings":      *spec.ArrayProperty(spec.StringProperty()).WithDescription("What differs from the original."),
	})
	s := structure("Restore brings removed objects back, with the rights of the client that created it. The server works on it until it has ended; to stop it, delete it. A dry run is answered and not stored.", map[string]spec.Schema{
		"spec": structure("What to bring back: exactly one of uid, cascade and object.", map[string]spec.Schema{
			"uid":     text("The uid that the object had."),
			"cascade": text("The id of a cascade: restore all objects of it."),
			"object": structure("The newest removed object of that name. If one cascade removed several, it is the first.", map[string]spec.Schema{
				"apiVersion": text("May be left out."), "kind": text("Kind, plural or short name."),
				"namespace": text("Empty for cluster-scoped kinds."), "name": text("The name."),
			}, "kind", "name"),
			"withCascade": flag("Also restore all objects of the same cascade: the content of a namespace, the objects of a definition, dependents. With uid or object."),
			"dryRun":      flag("Return the results and change nothing."),
			"keepTokens":  flag("Restore the tokens of Users too, which their deletion revoked: they are valid again."),
		}),
		"status": structure("The result for each object, owners first.", map[string]spec.Schema{
			"phase":    text("Running, Waiting (for objects that are being deleted), Complete, or Incomplete: the results say what is missing. Absent in a dry run."),
			"complete": flag("All that was asked for exists again."),
			"message":  text("What it waits for, or why it cannot go on."),
			"waiting":  number("How many are still being deleted, or wait for such objects. They are restored as soon as those are gone."),
			"created":  number("How many were created."), "skipped": number("How many were skipped."), "failed": number("How many failed."),
			"calledOff":  number("How many were held by the guard: they were never removed and are ACTIVE again."),
			"conflicts":  number("How many were skipped because another object has the name."),
			"cascade":    text("The object's cascade. Set if one object is restored alone."),
			"leftBehind": number("How many other objects of that cascade are still only in the archive."),
			"results":    *spec.ArrayProperty(&result).WithDescription("One for each object. Of more than 5,000, those that were created as they were are left out."),
		}),
	}, "spec")
	return &s
}
