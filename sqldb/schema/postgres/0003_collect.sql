-- What the collector of objects needs: its queues, its switch, and the triggers
-- that fill the queue. Triggers on updates name the column deletion_time: a write
-- that leaves an ACTIVE object ACTIVE does not set it, and calls none of them.
--
-- The collector removes objects in sets, so the triggers on removals run once for
-- each statement. Run for each row, they wrote many versions of one queue row in
-- one transaction. PostgreSQL keeps the plans of these functions, and may make
-- them while the tables are small: enable_seqscan = off keeps the plans right when
-- the tables have grown.

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
COMMENT ON TABLE gc_object_reviews IS 'Objects, and uids of objects that are gone, that the collector must review: see package review for the columns, package gc for the events.';

CREATE INDEX gc_object_reviews_review_after_idx ON gc_object_reviews (review_after);

CREATE TABLE gc_admission_reviews (
    uid          text COLLATE "C" PRIMARY KEY,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint
);
COMMENT ON TABLE gc_admission_reviews IS 'Objects that the collector would delete, and whose delete a webhook or a policy may judge. The event is the uid of the owner or namespace that causes it.';

CREATE INDEX gc_admission_reviews_review_after_idx ON gc_admission_reviews (review_after);

CREATE TABLE gc_state (
    one    integer PRIMARY KEY CONSTRAINT gc_state_one_check CHECK (one = 1),
    paused boolean NOT NULL,
    reason text NOT NULL
);
COMMENT ON TABLE gc_state IS 'The collector''s persisted switch: one row.';

INSERT INTO gc_state (one, paused, reason) VALUES (1, false, '');

CREATE FUNCTION gc_enqueue_object(subject text, cause text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gc_object_reviews AS q (uid, review_after, review_count, event, created_at)
    VALUES (subject, 0, 0, cause, (extract(epoch FROM now()) * 1000)::bigint)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = CASE WHEN q.event IN ('owner_removed', 'cluster_owner_removed') THEN q.event ELSE excluded.event END,
        claim_token = NULL, claim_until = NULL
    WHERE q.claim_token IS NOT NULL OR q.review_after > excluded.review_after OR q.event <> excluded.event;
END
$$;
COMMENT ON FUNCTION gc_enqueue_object IS 'Puts an object under review; a review that has begun is repeated. The event of a removed owner stays: it is proof that the owner existed. A row that is already queued like this is not written again. In plpgsql, as all functions with statements: PostgreSQL plans those of functions in SQL again for each call.';

CREATE FUNCTION gc_track_objects_removed() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    DELETE FROM owners w USING gone g WHERE w.dependent = g.id;
    PERFORM gc_enqueue_object(found.uid, found.cause) FROM (
        SELECT g.uid, CASE WHEN g.namespace = '' THEN 'cluster_owner_removed' ELSE 'owner_removed' END AS cause FROM gone g
        WHERE (SELECT TRUE FROM owners w WHERE w.owner_uid >= g.uid AND w.owner_uid <= g.uid ORDER BY w.owner_uid LIMIT 1) IS NOT NULL
        UNION ALL
        SELECT n.uid, 'content_removed' FROM (SELECT DISTINCT g.namespace FROM gone g WHERE g.namespace <> '') AS emptied
        JOIN objects n ON n.kind = 'namespaces' AND n.namespace = '' AND n.name = emptied.namespace AND n.deletion_time IS NOT NULL
        ORDER BY 1) AS found;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_objects_removed IS 'Deletes the references of removed objects. A removed owner is reviewed if it has dependents: its row proves that the owner existed and is gone, also after its kind is gone, and the event says whether it was in a namespace. A terminating namespace is reviewed after removals in it. The index on owner_uid answers whether dependents are left: with EXISTS, PostgreSQL reads the whole primary key for each object when nearly all references name one owner, as in a large cascade.';
CREATE TRIGGER objects_removed_track AFTER DELETE ON objects
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION gc_track_objects_removed();

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
COMMENT ON FUNCTION gc_track_object_deleting IS 'An object that is DELETING and waits for the collector is reviewed after every change to it; a terminating namespace, for its conditions, when a DELETING object in it changes.';
CREATE TRIGGER objects_deleting_track AFTER UPDATE OF deletion_time ON objects
    FOR EACH ROW WHEN (NEW.deletion_time IS NOT NULL)
    EXECUTE FUNCTION gc_track_object_deleting();

CREATE FUNCTION gc_track_owner_added() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner objects%ROWTYPE;
    suffix text := CASE WHEN NEW.owner_group = '' THEN '' ELSE '.' || NEW.owner_group END;
BEGIN
    SELECT * INTO owner FROM objects WHERE uid = NEW.owner_uid;
    IF NOT FOUND THEN
        PERFORM gc_enqueue_object(NEW.owner_uid, 'owner_absent');
        RETURN NULL;
    END IF;
    IF owner.deletion_time IS NOT NULL AND owner.finalizing & 2 <> 0 THEN
        PERFORM gc_enqueue_object(NEW.owner_uid, 'owner_absent');
    END IF;
    IF owner.name <> NEW.owner_name OR owner.kind NOT IN (
        lower(NEW.owner_kind) || 's' || suffix, lower(NEW.owner_kind) || 'es' || suffix,
        lower(rtrim(NEW.owner_kind, 'y')) || 'ies' || suffix, lower(NEW.owner_kind) || suffix)
    THEN
        PERFORM gc_enqueue_object(d.uid, 'owner_foreign') FROM objects d WHERE d.id = NEW.dependent;
    ELSIF owner.namespace <> '' THEN
        PERFORM gc_enqueue_object(d.uid, 'owner_foreign') FROM objects d
        WHERE d.id = NEW.dependent AND d.namespace <> owner.namespace;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_owner_added IS 'A reference to an owner that does not exist, or that waits for its dependents, puts that owner under review. A reference puts its dependent under review if the object with its uid is in another namespace, or has another name or kind. Only the definition of a kind knows its plural, so the function accepts the regular plurals. With an irregular plural the review finds that nothing is wrong.';
CREATE TRIGGER owners_added_track AFTER INSERT ON owners
    FOR EACH ROW EXECUTE FUNCTION gc_track_owner_added();

CREATE FUNCTION gc_track_owners_removed() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM gc_enqueue_object(waiting.uid, 'dependent_removed') FROM (
        SELECT o.uid FROM (SELECT DISTINCT g.owner_uid FROM gone g WHERE g.blocking) AS lost
        JOIN objects o ON o.uid = lost.owner_uid AND o.deletion_time IS NOT NULL AND o.finalizing & 2 <> 0
        ORDER BY 1) AS waiting;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_owners_removed IS 'An owner that waits for its dependents is reviewed when a blocking dependent is removed, or drops its reference.';
CREATE TRIGGER owners_removed_track AFTER DELETE ON owners
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION gc_track_owners_removed();

CREATE TABLE quota_reviews (
    uid          text COLLATE "C" PRIMARY KEY,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint
) WITH (fillfactor = 50);
COMMENT ON TABLE quota_reviews IS 'ResourceQuotas whose status must be written, by uid: see package review for the columns. The transaction that changes the usage adds the row.';

CREATE INDEX quota_reviews_review_after_idx ON quota_reviews (review_after);
