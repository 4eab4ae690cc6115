CREATE TABLE revision (
    one       integer PRIMARY KEY CONSTRAINT revision_one_check CHECK (one = 1),
    current   bigint NOT NULL,
    compacted bigint NOT NULL,
    archived  bigint NOT NULL DEFAULT 0,
    quotas    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
COMMENT ON TABLE revision IS 'The counter of the object log: one row. Its lock is the lock for writing objects.';
COMMENT ON COLUMN revision.current IS 'the newest revision';
COMMENT ON COLUMN revision.compacted IS 'states before this revision are gone';
COMMENT ON COLUMN revision.archived IS 'bytes of the bodies that the archive holds: kept here because every write changes this row anyway';
COMMENT ON COLUMN revision.quotas IS 'revision of the last change to what a ResourceQuota limits: every write reads this row anyway';

-- Starts at 1: to clients, version 0 of a list means "any version".
INSERT INTO revision (one, current, compacted) VALUES (1, 1, 0);

CREATE TABLE objects (
    id                 bigint PRIMARY KEY,
    uid                text COLLATE "C" NOT NULL CONSTRAINT objects_uid_key UNIQUE,
    kind               text COLLATE "C" NOT NULL,
    namespace          text COLLATE "C" NOT NULL,
    name               text COLLATE "C" NOT NULL,
    revision           bigint NOT NULL,
    deletion_time      bigint,
    grace_seconds      bigint,
    finalizing         integer NOT NULL DEFAULT 0,
    deletion_actor     text COLLATE "C",
    deletion_cascade   text COLLATE "C",
    deletion_requester text COLLATE "C",
    deletion_request_id text COLLATE "C",
    CONSTRAINT objects_kind_namespace_name_key UNIQUE (kind, namespace, name)
);
COMMENT ON TABLE objects IS 'The objects that exist: a narrow head each. The body is in changes, at the head''s revision.';
COMMENT ON COLUMN objects.id IS 'the revision of its creation';
COMMENT ON COLUMN objects.kind IS 'storage name: deployments.apps';
COMMENT ON COLUMN objects.namespace IS 'empty: cluster-scoped';
COMMENT ON COLUMN objects.deletion_time IS 'Unix seconds; null: not being deleted';
COMMENT ON COLUMN objects.finalizing IS 'the collector''s tasks that a DELETING object waits for: 1 orphan its dependents, 2 delete them first, 4 empty the namespace';
COMMENT ON COLUMN objects.deletion_actor IS 'who asked for the deletion of a DELETING object';
COMMENT ON COLUMN objects.deletion_cascade IS 'the cascade that a DELETING object is part of; null: its own, named by its uid';
COMMENT ON COLUMN objects.deletion_requester IS 'the client whose delete began that cascade; null: the actor itself';
COMMENT ON COLUMN objects.deletion_request_id IS 'the Audit-Id of that delete; null: it was not a request';

CREATE INDEX objects_cascade_idx ON objects ((coalesce(deletion_cascade, uid))) WHERE deletion_time IS NOT NULL;

CREATE INDEX objects_finalizing_idx ON objects (uid) WHERE deletion_time IS NOT NULL AND finalizing <> 0;
COMMENT ON INDEX objects_finalizing_idx IS 'The objects that wait for the collector, for its scan: few rows.';

CREATE TABLE changes (
    revision  bigint PRIMARY KEY,
    object    bigint NOT NULL,
    uid       text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    type      integer NOT NULL CONSTRAINT changes_type_check CHECK (type IN (1, 2, 3)),
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
    dependent   bigint NOT NULL,
    owner_uid   text COLLATE "C" NOT NULL,
    blocking    boolean NOT NULL,
    controller  boolean NOT NULL,
    owner_group text COLLATE "C" NOT NULL DEFAULT '',
    owner_kind  text COLLATE "C" NOT NULL DEFAULT '',
    owner_name  text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (dependent, owner_uid)
);
COMMENT ON TABLE owners IS 'metadata.ownerReferences of the objects that exist. The owner may not exist. A trigger of objects removes the rows of removed objects, for a whole statement at once.';
COMMENT ON COLUMN owners.dependent IS 'objects.id';
COMMENT ON COLUMN owners.blocking IS 'blockOwnerDeletion';
COMMENT ON COLUMN owners.owner_group IS 'without a version: all versions of a kind are the same objects';

CREATE INDEX owners_owner_uid_dependent_idx ON owners (owner_uid, dependent);

CREATE TABLE object_expiries (
    object     bigint PRIMARY KEY,
    expires_at bigint NOT NULL
);
COMMENT ON TABLE object_expiries IS 'When objects are removed without a request. A row may outlive its object: then it is deleted when it is due.';
COMMENT ON COLUMN object_expiries.object IS 'objects.id';
COMMENT ON COLUMN object_expiries.expires_at IS 'Unix milliseconds';

CREATE INDEX object_expiries_expires_at_idx ON object_expiries (expires_at);

CREATE TABLE seal_keys (
    name        text COLLATE "C" PRIMARY KEY,
    check_value bytea NOT NULL,
    sealing     boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE seal_keys IS 'The keys that may have sealed a body. A server without one of them is refused while a body needs it. See docs/spec/sealing.md.';
COMMENT ON COLUMN seal_keys.check_value IS 'a known text, sealed with the key';
COMMENT ON COLUMN seal_keys.sealing IS 'every replica seals with this one';

CREATE UNIQUE INDEX seal_keys_sealing_idx ON seal_keys (sealing) WHERE sealing;

CREATE TABLE sealed_kinds (
    kind text COLLATE "C" PRIMARY KEY
);
COMMENT ON TABLE sealed_kinds IS 'The kinds that may have sealed bodies.';
