-- loses who confirmed deletions: SELECT count(*) FROM objects WHERE deletion_confirmer IS NOT NULL

ALTER TABLE objects DROP COLUMN deletion_confirmer;
