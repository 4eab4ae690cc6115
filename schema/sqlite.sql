-- The current schema. Written by `go generate ./schema`: do not edit.

CREATE TABLE changes (
    -- The log: every change to every object, until compaction.
    revision  INTEGER PRIMARY KEY,
    object    INTEGER NOT NULL, -- objects.id, also after the object is gone
    uid       TEXT NOT NULL,
    kind      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    type      INTEGER NOT NULL CHECK (type IN (1, 2, 3)), -- created, updated, removed
    previous  INTEGER,          -- revision of the state before; null: created
    body      BLOB              -- null: removed; the last body is at previous
) STRICT;

CREATE INDEX changes_kind_revision_idx ON changes (kind, revision);

CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;

CREATE TABLE objects (
    -- The objects that exist: a narrow head each. The body is in changes, at
    -- the head's revision.
    id            INTEGER PRIMARY KEY, -- the revision of its creation
    uid           TEXT NOT NULL UNIQUE,
    kind          TEXT NOT NULL,       -- storage name: deployments.apps
    namespace     TEXT NOT NULL,       -- empty: cluster-scoped
    name          TEXT NOT NULL,
    revision      INTEGER NOT NULL,
    deletion_time INTEGER,             -- Unix seconds; null: not being deleted
    grace_seconds INTEGER,
    UNIQUE (kind, namespace, name)
) STRICT;

CREATE TABLE owners (
    -- metadata.ownerReferences of the objects that exist. The owner may not.
    dependent  INTEGER NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
    owner_uid  TEXT NOT NULL,
    blocking   INTEGER NOT NULL, -- boolean: blockOwnerDeletion
    controller INTEGER NOT NULL, -- boolean
    PRIMARY KEY (dependent, owner_uid)
) STRICT, WITHOUT ROWID;

CREATE INDEX owners_owner_uid_idx ON owners (owner_uid);

CREATE TABLE revision (
    -- The counter of the object log: one row.
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    current   INTEGER NOT NULL, -- the newest revision
    compacted INTEGER NOT NULL  -- states before this revision are gone
) STRICT;
