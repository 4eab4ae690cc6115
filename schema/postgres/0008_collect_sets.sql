-- The collector removes objects in sets: the triggers work on sets too, once a
-- statement. One row at a time, each removed object cost four calls of a
-- function, and the queue's row of an owner that waits for many dependents got
-- one version after the other in one transaction, each slower to reach.
--
-- The plans of these functions are kept, and may be made while the tables are
-- small: enable_seqscan keeps them right when they have grown.

-- A row that is queued as it should be is left alone.
CREATE OR REPLACE FUNCTION gc_enqueue_object(subject text, cause text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO gc_object_reviews AS q (uid, review_after, review_count, event, created_at)
    VALUES (subject, 0, 0, cause, (extract(epoch FROM now()) * 1000)::bigint)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL
    WHERE q.claim_token IS NOT NULL OR q.review_after > excluded.review_after OR q.event <> excluded.event
$$;

-- The references of a removed object go with it: what the foreign key did, row
-- by row. Then its dependents have lost an owner, and its namespace content.
DROP TRIGGER objects_removed_track ON objects;
DROP FUNCTION gc_track_object_removed();
ALTER TABLE owners DROP CONSTRAINT owners_dependent_fkey;

CREATE FUNCTION gc_track_objects_removed() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    DELETE FROM owners w USING gone g WHERE w.dependent = g.id;
    PERFORM gc_enqueue_object(found.uid, found.cause) FROM (
        SELECT g.uid, 'owner_removed' AS cause FROM gone g
        WHERE EXISTS (SELECT 1 FROM owners w WHERE w.owner_uid = g.uid)
        UNION ALL
        SELECT n.uid, 'content_removed' FROM (SELECT DISTINCT g.namespace FROM gone g WHERE g.namespace <> '') AS emptied
        JOIN objects n ON n.kind = 'namespaces' AND n.namespace = '' AND n.name = emptied.namespace AND n.deletion_time IS NOT NULL
        ORDER BY 1) AS found;
    RETURN NULL;
END
$$;
CREATE TRIGGER objects_removed_track AFTER DELETE ON objects
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION gc_track_objects_removed();

-- An owner in foreground deletion waits for those that block it.
DROP TRIGGER owners_removed_track ON owners;
DROP FUNCTION gc_track_owner_removed();

CREATE FUNCTION gc_track_owners_removed() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM gc_enqueue_object(waiting.uid, 'dependent_removed') FROM (
        SELECT o.uid FROM (SELECT DISTINCT g.owner_uid FROM gone g WHERE g.blocking) AS lost
        JOIN objects o ON o.uid = lost.owner_uid AND o.deletion_time IS NOT NULL AND o.finalizing & 2 <> 0
        ORDER BY 1) AS waiting;
    RETURN NULL;
END
$$;
CREATE TRIGGER owners_removed_track AFTER DELETE ON owners
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION gc_track_owners_removed();
