ALTER TABLE revision ADD COLUMN changed_at bigint NOT NULL DEFAULT 0, ADD COLUMN moved bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN revision.changed_at IS 'changes.at of the newest revision';
COMMENT ON COLUMN revision.moved IS 'states that changes up to this revision replaced are not in the log any more';
UPDATE revision SET moved = CASE WHEN compacted < 1 THEN 1 ELSE compacted END;
