-- What was removed, for as long as one may change one's mind.

ALTER TABLE objects ADD COLUMN deletion_actor text COLLATE "C";
ALTER TABLE objects ADD COLUMN deletion_cascade text COLLATE "C";
COMMENT ON COLUMN objects.deletion_actor IS 'who asked for the deletion of a DELETING object';
COMMENT ON COLUMN objects.deletion_cascade IS 'the cascade that a DELETING object goes with; null: its own, named by its uid';

ALTER TABLE revision ADD COLUMN archived bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN revision.archived IS 'bytes of the bodies that the archive holds: kept here because every write changes this row anyway';

CREATE TABLE archive (
    id            bigint PRIMARY KEY,
    uid           text COLLATE "C" NOT NULL,
    kind          text COLLATE "C" NOT NULL,
    namespace     text COLLATE "C" NOT NULL,
    name          text COLLATE "C" NOT NULL,
    body_revision bigint,
    removed_at    bigint NOT NULL,
    actor         text COLLATE "C" NOT NULL,
    cascade       text COLLATE "C" NOT NULL,
    size          bigint NOT NULL
);
COMMENT ON TABLE archive IS 'The objects that were removed, until they expire. The body stays where it was, in changes: compaction leaves it while a row here points at it.';
COMMENT ON COLUMN archive.id IS 'the revision of the removal';
COMMENT ON COLUMN archive.namespace IS 'empty: cluster-scoped; a Namespace is in itself';
COMMENT ON COLUMN archive.body_revision IS 'changes.revision of the last body; null: not kept (Secrets)';
COMMENT ON COLUMN archive.removed_at IS 'Unix milliseconds';
COMMENT ON COLUMN archive.actor IS 'who asked for the deletion';
COMMENT ON COLUMN archive.cascade IS 'uid of the object whose deletion was the cause, or an id of a request''s own';
COMMENT ON COLUMN archive.size IS 'bytes of the body';

CREATE INDEX archive_uid_idx ON archive (uid);
CREATE INDEX archive_namespace_removed_at_idx ON archive (namespace, removed_at);
-- What went alone is its own cascade and is found by its uid.
CREATE INDEX archive_cascade_idx ON archive (cascade) WHERE cascade <> uid;
CREATE INDEX archive_namespaces_idx ON archive (name) WHERE kind = 'namespaces';
