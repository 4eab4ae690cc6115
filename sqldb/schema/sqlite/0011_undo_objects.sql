-- A restored object keeps its uid, and a deletion is archived as it was asked for.
ALTER TABLE objects ADD COLUMN own_cascade TEXT /* the cascade that its deletion begins; null: named by its uid. A restored object has another, because its uid named one before */;
ALTER TABLE objects ADD COLUMN asked_body INTEGER /* of a DELETING object: changes.revision of its body when the deletion was asked for. Compaction keeps it */;
ALTER TABLE objects ADD COLUMN asked_at INTEGER /* of a DELETING object: the revision that marked it, which replaced that body */;
