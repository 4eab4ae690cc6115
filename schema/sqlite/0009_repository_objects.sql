-- A repository of the registry is also an object: Repository, of
-- registry.exeunt.dev/v1. Triggers on the objects keep its row in step with it,
-- in the transaction that writes the object, so nothing can come between them:
--
--   the object is written     the row is made, or takes over what the spec says
--   it becomes DELETING       pushes are refused
--   it is removed             the row becomes unreachable, with all its content
--   it is restored            the row is what it was
--   it left the archive       the row is reviewed, and its content goes
--
-- docs/spec/registry-tracking.md has the argument.

-- object_uid: of its Repository; null: none was made yet. deleting: nothing is
-- pushed to it any more. removed_at: Unix milliseconds; null: the Repository
-- exists. The path of one that is removed is @ and the uid, which no request
-- can ask for.
ALTER TABLE repositories ADD COLUMN object_uid TEXT;
ALTER TABLE repositories ADD COLUMN deleting INTEGER NOT NULL DEFAULT 0; -- boolean
ALTER TABLE repositories ADD COLUMN removed_at INTEGER;

CREATE UNIQUE INDEX repositories_object_uid_idx ON repositories (object_uid) WHERE object_uid IS NOT NULL;

-- deleting: the API namespace is Terminating.
ALTER TABLE top_level_namespaces ADD COLUMN deleting INTEGER NOT NULL DEFAULT 0; -- boolean

-- restored_as: the uid of the object that was made of this row, last.
ALTER TABLE archive ADD COLUMN restored_as TEXT;

CREATE INDEX archive_restored_as_idx ON archive (restored_as) WHERE restored_as IS NOT NULL;

CREATE TABLE gc_repository_review_queue (
    -- Repositories that were removed: their content goes when they can no longer
    -- be restored. See package review for the columns.
    uid          TEXT PRIMARY KEY, -- of the Repository
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
) STRICT;

CREATE INDEX gc_repository_review_queue_review_after_idx ON gc_repository_review_queue (review_after);

CREATE TRIGGER repositories_follow_created_trigger AFTER INSERT ON changes
WHEN NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.type = 1
BEGIN
    INSERT INTO top_level_namespaces (name, created_at) VALUES (NEW.namespace, unixepoch() * 1000)
    ON CONFLICT (name) DO NOTHING;
    -- One that is restored has its content back.
    UPDATE repositories SET
        path = CAST(NEW.body AS TEXT) ->> '$.spec.path', object_uid = NEW.uid, deleting = 0, removed_at = NULL
    WHERE path = (SELECT '@' || a.uid FROM archive a WHERE a.restored_as = NEW.uid LIMIT 1)
        AND NOT EXISTS (SELECT 1 FROM repositories r WHERE r.path = CAST(NEW.body AS TEXT) ->> '$.spec.path');
    INSERT INTO repositories (top_level_namespace_id, path, created_at, object_uid, gc_hold, gc_delay)
    SELECT n.id, CAST(NEW.body AS TEXT) ->> '$.spec.path', unixepoch() * 1000, NEW.uid,
        coalesce(CAST(NEW.body AS TEXT) ->> '$.spec.hold', 0), (CAST(NEW.body AS TEXT) ->> '$.spec.reviewAfterSeconds') * 1000
    FROM top_level_namespaces n WHERE n.name = NEW.namespace
    ON CONFLICT (path) DO UPDATE SET
        object_uid = excluded.object_uid, gc_hold = excluded.gc_hold, gc_delay = excluded.gc_delay;
END;

CREATE TRIGGER repositories_follow_updated_trigger AFTER INSERT ON changes
WHEN NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.type = 2
BEGIN
    UPDATE repositories SET
        gc_hold = coalesce(CAST(NEW.body AS TEXT) ->> '$.spec.hold', 0),
        gc_delay = (CAST(NEW.body AS TEXT) ->> '$.spec.reviewAfterSeconds') * 1000
    WHERE object_uid = NEW.uid;
END;

CREATE TRIGGER repositories_follow_deleting_trigger AFTER UPDATE ON objects
WHEN NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL
BEGIN
    UPDATE repositories SET deleting = 1 WHERE object_uid = NEW.uid;
END;

-- A hold is for collection; this is a deletion. While the archive has the
-- object, the review only looks after what was forgotten.
CREATE TRIGGER repositories_follow_removed_trigger AFTER DELETE ON objects
WHEN OLD.kind = 'repositories.registry.exeunt.dev'
BEGIN
    INSERT INTO gc_repository_review_queue (uid, review_after, review_count, event, created_at)
    SELECT OLD.uid,
        CASE WHEN EXISTS (SELECT 1 FROM archive a WHERE a.uid = OLD.uid) THEN (unixepoch() + 3600) * 1000 ELSE 0 END,
        0, 'repository_delete', unixepoch() * 1000
    FROM repositories r WHERE r.object_uid = OLD.uid
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
    UPDATE repositories SET path = '@' || OLD.uid, deleting = 1, removed_at = unixepoch() * 1000, gc_hold = 0
    WHERE object_uid = OLD.uid;
END;

CREATE TRIGGER repositories_follow_archive_trigger AFTER DELETE ON archive
WHEN OLD.kind = 'repositories.registry.exeunt.dev'
BEGIN
    UPDATE gc_repository_review_queue SET review_after = 0, event = 'archive_delete', claim_token = NULL, claim_until = NULL
    WHERE uid = OLD.uid;
END;

CREATE TRIGGER top_level_namespaces_follow_created_trigger AFTER INSERT ON objects
WHEN NEW.kind = 'namespaces'
BEGIN
    UPDATE top_level_namespaces SET deleting = 0 WHERE name = NEW.name AND deleting;
END;

CREATE TRIGGER top_level_namespaces_follow_deleting_trigger AFTER UPDATE ON objects
WHEN NEW.kind = 'namespaces' AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL
BEGIN
    UPDATE top_level_namespaces SET deleting = 1 WHERE name = NEW.name;
END;
