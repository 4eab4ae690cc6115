ALTER TABLE archive ADD COLUMN confirmer text COLLATE "C";
COMMENT ON COLUMN archive.confirmer IS 'as objects.deletion_confirmer';
