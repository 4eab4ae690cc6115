ALTER TABLE tags ADD COLUMN fetched_at bigint;
COMMENT ON COLUMN tags.fetched_at IS 'Unix milliseconds; when the upstream of a cached repository last named its manifest; null: a client pushed the tag';
