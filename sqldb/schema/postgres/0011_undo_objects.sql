ALTER TABLE objects ADD COLUMN own_cascade text COLLATE "C", ADD COLUMN asked_body bigint, ADD COLUMN asked_at bigint;
COMMENT ON COLUMN objects.own_cascade IS 'the cascade that its deletion begins; null: named by its uid. A restored object has another, because its uid named one before';
COMMENT ON COLUMN objects.asked_body IS 'of a DELETING object: changes.revision of its body when the deletion was asked for. Compaction keeps it';
COMMENT ON COLUMN objects.asked_at IS 'of a DELETING object: the revision that marked it, which replaced that body';
