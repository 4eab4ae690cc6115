-- What the collector needs: which objects it must act on, and its queue.

-- finalizing says which of the collector's tasks a DELETING object waits for:
-- 1 orphan its dependents, 2 delete them first, 4 empty the namespace.
ALTER TABLE objects ADD COLUMN finalizing INTEGER NOT NULL DEFAULT 0;

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

INSERT INTO gc_state (one, paused, reason) VALUES (1, 0, '');

-- An owner that is gone is reviewed for its dependents; one that had none is
-- not.
CREATE TRIGGER objects_removed_track AFTER DELETE ON objects
WHEN EXISTS (SELECT 1 FROM owners WHERE owner_uid = OLD.uid)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (OLD.uid, 0, 0, 'owner_removed', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

-- A terminating namespace is reviewed whenever something in it is gone.
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

-- It is reviewed as well, for its conditions, whenever something that lingers
-- in it has changed.
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

-- An object that is DELETING and waits for the collector is reviewed after
-- every change to it.
CREATE TRIGGER objects_deleting_track AFTER UPDATE ON objects
WHEN NEW.deletion_time IS NOT NULL AND NEW.finalizing <> 0
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (NEW.uid, 0, 0, 'deleting', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

-- A reference to an owner that does not exist, or that waits for its
-- dependents, puts that owner under review.
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

-- A reference across namespaces puts the dependent under review.
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

-- An owner that waits for its dependents is reviewed when one that blocks it
-- is gone, or has let go of it.
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
