-- What the collector needs: which objects it must act on, and its queue.

ALTER TABLE objects ADD COLUMN finalizing integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN objects.finalizing IS 'what of the collector a DELETING object waits for: 1 orphan its dependents, 2 delete them first, 4 empty the namespace';

CREATE INDEX owners_owner_uid_dependent_idx ON owners (owner_uid, dependent);
DROP INDEX owners_owner_uid_idx;

CREATE TABLE gc_object_reviews (
    uid          text COLLATE "C" PRIMARY KEY,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint
);
COMMENT ON TABLE gc_object_reviews IS 'Objects, and uids of objects that are gone, that the collector must look at: see package review for the columns, package gc for the events.';

CREATE INDEX gc_object_reviews_review_after_idx ON gc_object_reviews (review_after);

CREATE TABLE gc_state (
    one    integer PRIMARY KEY CHECK (one = 1),
    paused boolean NOT NULL,
    reason text NOT NULL
);
COMMENT ON TABLE gc_state IS 'The collector''s persisted switch: one row.';

INSERT INTO gc_state (one, paused, reason) VALUES (1, false, '');

CREATE FUNCTION gc_enqueue_object(subject text, cause text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO gc_object_reviews AS q (uid, review_after, review_count, event, created_at)
    VALUES (subject, 0, 0, cause, (extract(epoch FROM now()) * 1000)::bigint)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL
$$;
COMMENT ON FUNCTION gc_enqueue_object IS 'Puts an object under review; a review that has begun is repeated.';

CREATE FUNCTION gc_track_object_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM owners WHERE owner_uid = OLD.uid) THEN
        PERFORM gc_enqueue_object(OLD.uid, 'owner_removed');
    END IF;
    IF OLD.namespace <> '' THEN
        PERFORM gc_enqueue_object(n.uid, 'content_removed') FROM objects n
        WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = OLD.namespace AND n.deletion_time IS NOT NULL;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_object_removed IS 'An owner that is gone is reviewed for its dependents; a terminating namespace whenever something in it is gone.';
CREATE TRIGGER objects_removed_track AFTER DELETE ON objects
    FOR EACH ROW EXECUTE FUNCTION gc_track_object_removed();

CREATE FUNCTION gc_track_object_deleting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.finalizing <> 0 THEN
        PERFORM gc_enqueue_object(NEW.uid, 'deleting');
    END IF;
    IF NEW.namespace <> '' THEN
        PERFORM gc_enqueue_object(n.uid, 'content_changed') FROM objects n
        WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = NEW.namespace AND n.deletion_time IS NOT NULL;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_object_deleting IS 'An object that is DELETING and waits for the collector is reviewed after every change to it; a terminating namespace whenever something that lingers in it has changed.';
CREATE TRIGGER objects_deleting_track AFTER UPDATE ON objects
    FOR EACH ROW WHEN (NEW.deletion_time IS NOT NULL)
    EXECUTE FUNCTION gc_track_object_deleting();

CREATE FUNCTION gc_track_owner_added() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner objects%ROWTYPE;
BEGIN
    SELECT * INTO owner FROM objects WHERE uid = NEW.owner_uid;
    IF NOT FOUND OR owner.deletion_time IS NOT NULL AND owner.finalizing & 2 <> 0 THEN
        PERFORM gc_enqueue_object(NEW.owner_uid, 'owner_absent');
    END IF;
    IF owner.namespace <> '' THEN
        PERFORM gc_enqueue_object(d.uid, 'owner_foreign') FROM objects d
        WHERE d.id = NEW.dependent AND d.namespace <> owner.namespace;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_owner_added IS 'A reference to an owner that does not exist, or that waits for its dependents, puts that owner under review; one across namespaces the dependent.';
CREATE TRIGGER owners_added_track AFTER INSERT ON owners
    FOR EACH ROW EXECUTE FUNCTION gc_track_owner_added();

CREATE FUNCTION gc_track_owner_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gc_enqueue_object(o.uid, 'dependent_removed') FROM objects o
    WHERE o.uid = OLD.owner_uid AND o.deletion_time IS NOT NULL AND o.finalizing & 2 <> 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_owner_removed IS 'An owner that waits for its dependents is reviewed when one that blocks it is gone, or has let go of it.';
CREATE TRIGGER owners_removed_track AFTER DELETE ON owners
    FOR EACH ROW WHEN (OLD.blocking) EXECUTE FUNCTION gc_track_owner_removed();
