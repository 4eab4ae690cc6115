ALTER TABLE objects ADD COLUMN deletion_confirmer text COLLATE "C";
COMMENT ON COLUMN objects.deletion_confirmer IS 'of a DELETING object: the client that last confirmed its deletion while the guard held it; null: none did';
