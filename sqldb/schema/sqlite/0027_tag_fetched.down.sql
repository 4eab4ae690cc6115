-- loses which tags are copies of an upstream: SELECT count(*) FROM tags WHERE fetched_at IS NOT NULL

ALTER TABLE tags DROP COLUMN fetched_at;
