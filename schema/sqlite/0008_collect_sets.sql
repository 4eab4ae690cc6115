-- The triggers that fire for each removed object of a cascade leave a row of the
-- queue alone that is queued as it should be already.

DROP TRIGGER owners_removed_track;
CREATE TRIGGER owners_removed_track AFTER DELETE ON owners
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

DROP TRIGGER objects_left_namespace_track;
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
        event = excluded.event, claim_token = NULL, claim_until = NULL
    WHERE claim_token IS NOT NULL OR review_after > excluded.review_after OR event <> excluded.event;
END;
