-- loses when tags were pulled: SELECT count(*) FROM tags WHERE pulled_at IS NOT NULL

ALTER TABLE tags DROP COLUMN pulled_at;
