ALTER TABLE archive ADD COLUMN body_replaced bigint;
COMMENT ON COLUMN archive.body_replaced IS 'the revision that replaced the body; null: the removal. Once it is compacted, only the archive needs the body';
DROP INDEX archive_roots_idx;
CREATE INDEX archive_roots_idx ON archive (id) WHERE substr(cascade, 1, length(uid)) = uid;
COMMENT ON INDEX archive_roots_idx IS 'The objects whose deletion began a cascade, the newest first.';
