package archive

import "k8s.io/kube-openapi/pkg/validation/spec"

// The OpenAPI schemas of our kinds, for kubectl's explain and checks.

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
			"spec": structure("What was removed, and how that came about.", map[string]spec.Schema{
				"apiVersion": text("Of the original."), "kind": text("Of the original."),
				"namespace": text("Of the original."), "name": text("Of the original."), "uid": text("Of the original."),
				"removedAt":   *spec.DateTimeProperty().WithDescription("When it was removed."),
				"requestedBy": text("The client whose delete began the cascade."),
				"actor":       text("Who deleted this object: the same client, or what followed up its delete, such as system:garbage-collector."),
				"cascade":     text("What all that went for one reason has in common: the uid of the object whose deletion was the reason, or an id of a deleted collection."),
				"size":        number("The length of the stored object in bytes."),
			}),
			"object": *original,
		})
	return &s
}

func restoreSchema() *spec.Schema {
	result := structure("What became of one object.", map[string]spec.Schema{
		"apiVersion": text("Of the object."), "kind": text("Of the object."), "namespace": text("Of the object."),
		"name": text("Of the object."), "uid": text("The uid that it had."), "newUID": text("The uid that it has now."),
		"outcome": text("created, skipped, failed, or called off."), "reason": text("Why it was skipped or failed."),
		"conflictsWith": text("The uid of the object that has the name now."),
		"relinked":      number("How many objects that were restored before it, without their references to it, refer to it again."),
		"warnings":      *spec.ArrayProperty(spec.StringProperty()).WithDescription("What differs from the original."),
	})
	s := structure("Restore brings removed objects back. It is answered and not stored.", map[string]spec.Schema{
		"spec": structure("What to bring back: exactly one of uid, cascade and object.", map[string]spec.Schema{
			"uid":     text("The uid that the object had."),
			"cascade": text("Everything that went for one reason."),
			"object": structure("The newest removed object of that name; of several in one cascade the first.", map[string]spec.Schema{
				"apiVersion": text("May be left out."), "kind": text("Kind, plural or short name."),
				"namespace": text("Empty for cluster-scoped kinds."), "name": text("The name."),
			}, "kind", "name"),
			"withCascade":       flag("Also restore everything that went in the same cascade as the object: the content of a namespace, the objects of a definition, dependents. With uid or object."),
			"dryRun":            flag("Change nothing and say what would be done."),
			"keepStatus":        flag("Restore the status too."),
			"keepManagedFields": flag("Restore metadata.managedFields too."),
		}),
		"status": structure("What became of each object, parents first.", map[string]spec.Schema{
			"complete": flag("False: the time was over first; the same Restore again goes on from there."),
			"created":  number("How many were created."), "skipped": number("How many were skipped."), "failed": number("How many failed."),
			"calledOff":  number("1: it was not gone yet, because the guard held its deletion, and is ACTIVE again."),
			"conflicts":  number("How many of the skipped have their name taken by another object."),
			"cascade":    text("What the object went with. Set for one that is restored alone."),
			"leftBehind": number("How many objects that went in that cascade are still only in the archive."),
			"results":    *spec.ArrayProperty(&result).WithDescription("One for each object."),
		}),
	}, "spec")
	return &s
}
