ALTER TABLE tags ADD COLUMN pulled_at bigint;
COMMENT ON COLUMN tags.pulled_at IS 'Unix milliseconds, to the hour; when its manifest was last pulled; null: not since it is recorded';
