CREATE TABLE revision (
    one       integer PRIMARY KEY CHECK (one = 1),
    current   bigint NOT NULL,
    compacted bigint NOT NULL
) WITH (fillfactor = 10);
COMMENT ON TABLE revision IS 'The counter of the object log: one row. Its lock is the lock for writing objects.';
COMMENT ON COLUMN revision.current IS 'the newest revision';
COMMENT ON COLUMN revision.compacted IS 'states before this revision are gone';

-- Starts at 1, so that no list of an empty database says version 0, which
-- means "any version" to clients.
INSERT INTO revision (one, current, compacted) VALUES (1, 1, 0);

CREATE TABLE objects (
    id            bigint PRIMARY KEY,
    uid           text COLLATE "C" NOT NULL UNIQUE,
    kind          text COLLATE "C" NOT NULL,
    namespace     text COLLATE "C" NOT NULL,
    name          text COLLATE "C" NOT NULL,
    revision      bigint NOT NULL,
    deletion_time bigint,
    grace_seconds bigint,
    UNIQUE (kind, namespace, name)
);
COMMENT ON TABLE objects IS 'The objects that exist: a narrow head each. The body is in changes, at the head''s revision.';
COMMENT ON COLUMN objects.id IS 'the revision of its creation';
COMMENT ON COLUMN objects.kind IS 'storage name: deployments.apps';
COMMENT ON COLUMN objects.namespace IS 'empty: cluster-scoped';
COMMENT ON COLUMN objects.deletion_time IS 'Unix seconds; null: not being deleted';

CREATE TABLE changes (
    revision  bigint PRIMARY KEY,
    object    bigint NOT NULL,
    uid       text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    type      integer NOT NULL CHECK (type IN (1, 2, 3)),
    previous  bigint,
    body      bytea
);
COMMENT ON TABLE changes IS 'The log: every change to every object, until compaction.';
COMMENT ON COLUMN changes.object IS 'objects.id, also after the object is gone';
COMMENT ON COLUMN changes.type IS '1 created, 2 updated, 3 removed';
COMMENT ON COLUMN changes.previous IS 'revision of the state before; null: created';
COMMENT ON COLUMN changes.body IS 'null: removed; the last body is at previous';

CREATE INDEX changes_kind_revision_idx ON changes (kind, revision);

CREATE TABLE owners (
    dependent  bigint NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
    owner_uid  text COLLATE "C" NOT NULL,
    blocking   boolean NOT NULL,
    controller boolean NOT NULL,
    PRIMARY KEY (dependent, owner_uid)
);
COMMENT ON TABLE owners IS 'metadata.ownerReferences of the objects that exist. The owner may not.';
COMMENT ON COLUMN owners.blocking IS 'blockOwnerDeletion';

CREATE INDEX owners_owner_uid_idx ON owners (owner_uid);
