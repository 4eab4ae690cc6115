CREATE TABLE revision (
    -- The counter of the object log: one row.
    one       INTEGER PRIMARY KEY CONSTRAINT revision_one_check CHECK (one = 1),
    current   INTEGER NOT NULL,          -- the newest revision
    compacted INTEGER NOT NULL,          -- states before this revision are gone
    archived  INTEGER NOT NULL DEFAULT 0, -- bytes of the bodies that the archive holds: kept here because every write changes this row anyway
    quotas    INTEGER NOT NULL DEFAULT 0  -- revision of the last change to what a ResourceQuota limits: every write reads this row anyway
) STRICT;

-- Starts at 1: to clients, version 0 of a list means "any version".
INSERT INTO revision (one, current, compacted) VALUES (1, 1, 0);

CREATE TABLE objects (
    -- The objects that exist: a narrow head each. The body is in changes, at
    -- the head's revision.
    id                 INTEGER PRIMARY KEY, -- the revision of its creation
    uid                TEXT NOT NULL CONSTRAINT objects_uid_key UNIQUE,
    kind               TEXT NOT NULL,       -- storage name: deployments.apps
    namespace          TEXT NOT NULL,       -- empty: cluster-scoped
    name               TEXT NOT NULL,
    revision           INTEGER NOT NULL,
    deletion_time      INTEGER,             -- Unix seconds; null: not being deleted
    grace_seconds      INTEGER,
    finalizing         INTEGER NOT NULL DEFAULT 0, -- the collector's tasks that a DELETING object waits for: 1 orphan its dependents, 2 delete them first, 4 empty the namespace
    deletion_actor     TEXT,                -- who asked for the deletion of a DELETING object
    deletion_cascade   TEXT,                -- the cascade that a DELETING object is part of; null: its own, named by its uid
    deletion_requester TEXT,                -- the client whose delete began that cascade; null: the actor itself
    deletion_request_id TEXT,               -- the Audit-Id of that delete; null: it was not a request
    CONSTRAINT objects_kind_namespace_name_key UNIQUE (kind, namespace, name)
) STRICT;

CREATE INDEX objects_cascade_idx ON objects ((coalesce(deletion_cascade, uid))) WHERE deletion_time IS NOT NULL;

CREATE INDEX objects_finalizing_idx
    -- The objects that wait for the collector, for its scan: few rows.
    ON objects (uid) WHERE deletion_time IS NOT NULL AND finalizing <> 0;

CREATE TABLE changes (
    -- The log: every change to every object, until compaction.
    revision  INTEGER PRIMARY KEY,
    object    INTEGER NOT NULL, -- objects.id, also after the object is gone
    uid       TEXT NOT NULL,
    kind      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    type      INTEGER NOT NULL CONSTRAINT changes_type_check CHECK (type IN (1, 2, 3)), -- created, updated, removed
    previous  INTEGER,          -- revision of the state before; null: created
    body      BLOB              -- null: removed; the last body is at previous
) STRICT;

CREATE INDEX changes_kind_revision_idx ON changes (kind, revision);

CREATE TABLE owners (
    -- metadata.ownerReferences of the objects that exist. The owner may not
    -- exist. A trigger of objects removes the rows of a removed object: a foreign
    -- key would make a temporary table for every removed object.
    dependent   INTEGER NOT NULL,        -- objects.id
    owner_uid   TEXT NOT NULL,
    blocking    INTEGER NOT NULL,        -- boolean: blockOwnerDeletion
    controller  INTEGER NOT NULL,        -- boolean
    owner_group TEXT NOT NULL DEFAULT '', -- without a version: all versions of a kind are the same objects
    owner_kind  TEXT NOT NULL DEFAULT '',
    owner_name  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (dependent, owner_uid)
) STRICT, WITHOUT ROWID;

CREATE INDEX owners_owner_uid_idx ON owners (owner_uid);

CREATE TABLE object_expiries (
    -- When objects are removed without a request. A row may outlive its object:
    -- then it is deleted when it is due.
    object     INTEGER PRIMARY KEY, -- objects.id
    expires_at INTEGER NOT NULL     -- Unix milliseconds
) STRICT;

CREATE INDEX object_expiries_expires_at_idx ON object_expiries (expires_at);

CREATE TABLE seal_keys (
    -- The keys that may have sealed a body. A server without one of them is
    -- refused while a body needs it. See docs/spec/sealing.md.
    name        TEXT PRIMARY KEY,
    check_value BLOB NOT NULL,             -- a known text, sealed with the key
    sealing     INTEGER NOT NULL DEFAULT 0 -- boolean: every replica seals with this one
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX seal_keys_sealing_idx ON seal_keys (sealing) WHERE sealing = 1;

CREATE TABLE sealed_kinds (
    -- The kinds that may have sealed bodies.
    kind TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
