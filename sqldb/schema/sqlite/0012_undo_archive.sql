ALTER TABLE archive ADD COLUMN body_replaced INTEGER /* the revision that replaced the body; null: the removal. Once it is compacted, only the archive needs the body */;
DROP INDEX archive_roots_idx;
CREATE INDEX archive_roots_idx
    -- The objects whose deletion began a cascade, the newest first.
    ON archive (id) WHERE substr(cascade, 1, length(uid)) = uid;
