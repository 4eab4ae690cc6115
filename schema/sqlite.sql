-- The current schema. Written by `go generate ./schema`: do not edit.

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

CREATE INDEX archive_cascade_idx ON archive (cascade) WHERE cascade <> uid;

CREATE INDEX archive_namespace_removed_at_idx ON archive (namespace, removed_at);

CREATE INDEX archive_namespaces_idx ON archive (name) WHERE kind = 'namespaces';

CREATE INDEX archive_uid_idx ON archive (uid);

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

CREATE TABLE gc_object_reviews (
    -- Objects, and uids of objects that are gone, that the collector must look
    -- at: see package review for the columns, package gc for the events.
    uid          TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
) STRICT;

CREATE INDEX gc_object_reviews_review_after_idx ON gc_object_reviews (review_after);

CREATE TABLE gc_state (
    -- The collector's persisted switch: one row.
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    paused INTEGER NOT NULL, -- boolean
    reason TEXT NOT NULL
) STRICT;

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
    grace_seconds INTEGER, finalizing INTEGER NOT NULL DEFAULT 0, deletion_actor TEXT, deletion_cascade TEXT,
    UNIQUE (kind, namespace, name)
) STRICT;

CREATE TRIGGER objects_deleting_track AFTER UPDATE ON objects
WHEN NEW.deletion_time IS NOT NULL AND NEW.finalizing <> 0
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (NEW.uid, 0, 0, 'deleting', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_left_namespace_track AFTER DELETE ON objects
WHEN OLD.namespace <> '' AND EXISTS (
    SELECT 1 FROM objects n
    WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = OLD.namespace AND n.deletion_time IS NOT NULL)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, 'content_removed', unixepoch() * 1000 FROM objects n
    WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = OLD.namespace
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_linger_in_namespace_track AFTER UPDATE ON objects
WHEN NEW.deletion_time IS NOT NULL AND NEW.namespace <> '' AND EXISTS (
    SELECT 1 FROM objects n
    WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = NEW.namespace AND n.deletion_time IS NOT NULL)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, 'content_changed', unixepoch() * 1000 FROM objects n
    WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = NEW.namespace
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_removed_track AFTER DELETE ON objects
WHEN EXISTS (SELECT 1 FROM owners WHERE owner_uid = OLD.uid)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (OLD.uid, 0, 0, 'owner_removed', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TABLE owners (
    -- metadata.ownerReferences of the objects that exist. The owner may not.
    dependent  INTEGER NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
    owner_uid  TEXT NOT NULL,
    blocking   INTEGER NOT NULL, -- boolean: blockOwnerDeletion
    controller INTEGER NOT NULL, -- boolean
    PRIMARY KEY (dependent, owner_uid)
) STRICT, WITHOUT ROWID;

CREATE INDEX owners_owner_uid_idx ON owners (owner_uid);

CREATE TRIGGER owners_added_track AFTER INSERT ON owners
WHEN NOT EXISTS (
    SELECT 1 FROM objects o WHERE o.uid = NEW.owner_uid AND (o.deletion_time IS NULL OR o.finalizing & 2 = 0))
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (NEW.owner_uid, 0, 0, 'owner_absent', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER owners_foreign_track AFTER INSERT ON owners
WHEN EXISTS (
    SELECT 1 FROM objects o, objects d
    WHERE o.uid = NEW.owner_uid AND d.id = NEW.dependent AND o.namespace <> '' AND o.namespace <> d.namespace)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    SELECT d.uid, 0, 0, 'owner_foreign', unixepoch() * 1000 FROM objects d WHERE d.id = NEW.dependent
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER owners_removed_track AFTER DELETE ON owners
WHEN OLD.blocking = 1 AND EXISTS (
    SELECT 1 FROM objects o WHERE o.uid = OLD.owner_uid AND o.deletion_time IS NOT NULL AND o.finalizing & 2 <> 0)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (OLD.owner_uid, 0, 0, 'dependent_removed', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TABLE revision (
    -- The counter of the object log: one row.
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    current   INTEGER NOT NULL, -- the newest revision
    compacted INTEGER NOT NULL  -- states before this revision are gone
, archived INTEGER NOT NULL DEFAULT 0) STRICT;
