-- loses nothing: SELECT 0

DROP INDEX archive_roots_idx;
CREATE INDEX archive_roots_idx ON archive (id) WHERE cascade = uid;
ALTER TABLE archive DROP COLUMN body_replaced;
