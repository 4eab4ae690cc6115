-- What the collector of objects needs: its queues, its switch, and the triggers
-- that fill the queue. Triggers on updates name the column deletion_time: a write
-- that leaves an ACTIVE object ACTIVE does not set it, and calls none of them.

CREATE TABLE gc_object_reviews (
    -- Objects, and uids of objects that are gone, that the collector must
    -- review: see package review for the columns, package gc for the events.
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

CREATE TABLE gc_admission_reviews (
    -- Objects that the collector would delete, and whose delete a webhook or a policy
    -- may judge. The event is the uid of the owner or namespace that causes it.
    uid          TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
) STRICT;

CREATE INDEX gc_admission_reviews_review_after_idx ON gc_admission_reviews (review_after);

CREATE TABLE gc_state (
    -- The collector's persisted switch: one row.
    one    INTEGER PRIMARY KEY CONSTRAINT gc_state_one_check CHECK (one = 1),
    paused INTEGER NOT NULL, -- boolean
    reason TEXT NOT NULL
) STRICT;

INSERT INTO gc_state (one, paused, reason) VALUES (1, 0, '');

CREATE TRIGGER objects_left_namespace_track AFTER DELETE ON objects
-- A terminating namespace is reviewed after each removal of an object in it. A
-- row that is already queued like this is not written again: a cascade removes
-- many objects.
WHEN OLD.namespace <> '' AND EXISTS (
    SELECT 1 FROM objects n
    WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = OLD.namespace AND n.deletion_time IS NOT NULL)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, 'content_removed', unixepoch() * 1000 FROM objects n
    WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = OLD.namespace
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL
    WHERE claim_token IS NOT NULL OR review_after > excluded.review_after OR event <> excluded.event;
END;

CREATE TRIGGER objects_deleting_track AFTER UPDATE OF deletion_time ON objects
-- An object that is DELETING and waits for the collector is reviewed after every
-- change to it.
WHEN NEW.deletion_time IS NOT NULL AND NEW.finalizing <> 0
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (NEW.uid, 0, 0, 'deleting', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_linger_in_namespace_track AFTER UPDATE OF deletion_time ON objects
-- A terminating namespace is also reviewed, for its conditions, when a DELETING
-- object in it changes.
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

CREATE TRIGGER objects_disowned AFTER DELETE ON objects
-- The references of a removed object are deleted with it. Sets of objects lose
-- theirs before, in one statement; this is for the others.
WHEN EXISTS (SELECT 1 FROM owners w WHERE w.dependent = OLD.id)
BEGIN
    DELETE FROM owners WHERE dependent = OLD.id;
END;

CREATE TRIGGER objects_removed_track AFTER DELETE ON objects
-- A removed owner is reviewed if it has dependents. Its row proves that the owner
-- existed and is gone, also after its kind is gone: the event says so, and
-- whether the owner was in a namespace.
WHEN EXISTS (SELECT 1 FROM owners WHERE owner_uid = OLD.uid)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (OLD.uid, 0, 0, CASE WHEN OLD.namespace = '' THEN 'cluster_owner_removed' ELSE 'owner_removed' END, unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER owners_removed_track AFTER DELETE ON owners
-- An owner that waits for its dependents is reviewed when a blocking dependent is
-- removed, or drops its reference.
WHEN OLD.blocking = 1 AND EXISTS (
    SELECT 1 FROM objects o WHERE o.uid = OLD.owner_uid AND o.deletion_time IS NOT NULL AND o.finalizing & 2 <> 0)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (OLD.owner_uid, 0, 0, 'dependent_removed', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL
    WHERE claim_token IS NOT NULL OR review_after > excluded.review_after OR event <> excluded.event;
END;

CREATE TRIGGER owners_foreign_track AFTER INSERT ON owners
-- A reference puts its dependent under review if the object with its uid is in
-- another namespace, or has another name or kind. Only the definition of a kind
-- knows its plural, so the trigger accepts the regular plurals. With an irregular
-- plural the review finds that nothing is wrong.
WHEN EXISTS (
    SELECT 1 FROM objects o, objects d
    WHERE o.uid = NEW.owner_uid AND d.id = NEW.dependent AND (
        o.namespace <> '' AND o.namespace <> d.namespace
        OR o.name <> NEW.owner_name
        OR (o.kind || CASE WHEN NEW.owner_group = '' THEN '.' ELSE '' END) NOT IN (
            lower(NEW.owner_kind) || 's.' || NEW.owner_group,
            lower(NEW.owner_kind) || 'es.' || NEW.owner_group,
            lower(rtrim(NEW.owner_kind, 'y')) || 'ies.' || NEW.owner_group,
            lower(NEW.owner_kind) || '.' || NEW.owner_group)))
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    SELECT d.uid, 0, 0, 'owner_foreign', unixepoch() * 1000 FROM objects d WHERE d.id = NEW.dependent
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER owners_added_track AFTER INSERT ON owners
-- A reference to an owner that does not exist, or that waits for its dependents,
-- puts that owner under review. The event of a removed owner stays: it is proof.
WHEN NOT EXISTS (
    SELECT 1 FROM objects o WHERE o.uid = NEW.owner_uid AND (o.deletion_time IS NULL OR o.finalizing & 2 = 0))
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (NEW.owner_uid, 0, 0, 'owner_absent', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = CASE WHEN event IN ('owner_removed', 'cluster_owner_removed') THEN event ELSE excluded.event END,
        claim_token = NULL, claim_until = NULL;
END;

CREATE TABLE quota_reviews (
    -- ResourceQuotas whose status must be written, by uid: see package review for
    -- the columns. The transaction that changes the usage adds the row.
    uid          TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
) STRICT;

CREATE INDEX quota_reviews_review_after_idx ON quota_reviews (review_after);
