ALTER TABLE revision ADD COLUMN changed_at INTEGER NOT NULL DEFAULT 0; -- changes.at of the newest revision
ALTER TABLE revision ADD COLUMN moved      INTEGER NOT NULL DEFAULT 0; -- states that changes up to this revision replaced are not in the log any more
UPDATE revision SET moved = CASE WHEN compacted < 1 THEN 1 ELSE compacted END;
