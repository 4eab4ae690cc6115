-- What was removed, for as long as one may change one's mind.

-- Who asked for the deletion of a DELETING object, and which cascade it is
-- part of. Null: not DELETING, or, of the cascade, the object's own uid.
ALTER TABLE objects ADD COLUMN deletion_actor TEXT;
ALTER TABLE objects ADD COLUMN deletion_cascade TEXT;

-- Bytes of the bodies that the archive holds: kept here because every write
-- changes this row anyway.
ALTER TABLE revision ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;

CREATE TABLE archive (
    -- The objects that were removed, until they expire. The body stays where
    -- it was, in changes: compaction leaves it while a row here points at it.
    id            INTEGER PRIMARY KEY, -- the revision of the removal
    uid           TEXT NOT NULL,
    kind          TEXT NOT NULL,
    namespace     TEXT NOT NULL,       -- empty: cluster-scoped; a Namespace is in itself
    name          TEXT NOT NULL,
    body_revision INTEGER,             -- changes.revision of the last body; null: not kept (Secrets)
    removed_at    INTEGER NOT NULL,    -- Unix milliseconds
    actor         TEXT NOT NULL,       -- who asked for the deletion
    cascade       TEXT NOT NULL,       -- uid of the object whose deletion was the cause, or an id of a request's own
    size          INTEGER NOT NULL     -- bytes of the body
) STRICT;

CREATE INDEX archive_uid_idx ON archive (uid);
CREATE INDEX archive_namespace_removed_at_idx ON archive (namespace, removed_at);
-- What went alone is its own cascade and is found by its uid.
CREATE INDEX archive_cascade_idx ON archive (cascade) WHERE cascade <> uid;
CREATE INDEX archive_namespaces_idx ON archive (name) WHERE kind = 'namespaces';
