-- An owner is kind, name and uid. A row of owners says all that its reference
-- does, so that a reference to another object than the one with its uid is found
-- without reading the dependent's body. The group comes without a version: all
-- versions of a kind are the same objects.
ALTER TABLE owners ADD COLUMN owner_group TEXT NOT NULL DEFAULT '';
ALTER TABLE owners ADD COLUMN owner_kind TEXT NOT NULL DEFAULT '';
ALTER TABLE owners ADD COLUMN owner_name TEXT NOT NULL DEFAULT '';

UPDATE owners SET
    owner_group = CASE WHEN instr(r.value ->> 'apiVersion', '/') > 0
        THEN substr(r.value ->> 'apiVersion', 1, instr(r.value ->> 'apiVersion', '/') - 1) ELSE '' END,
    owner_kind = coalesce(r.value ->> 'kind', ''),
    owner_name = coalesce(r.value ->> 'name', '')
FROM objects d, changes c, json_each(CASE WHEN substr(c.body, 1, 1) = x'7b' THEN CAST(c.body AS TEXT) ELSE '{}' END, -- a body that is sealed is no JSON
    '$.metadata.ownerReferences') r
WHERE d.id = owners.dependent AND c.revision = d.revision AND r.value ->> 'uid' = owners.owner_uid;

-- A reference that does not lead to the object with its uid puts the dependent
-- under review: that is in another namespace, or has another name or kind. What
-- plural a kind has only its definition knows. The regular plurals are passed
-- over here; a review of a dependent whose owner's plural is another one finds
-- that nothing is wrong.
DROP TRIGGER owners_foreign_track;
CREATE TRIGGER owners_foreign_track AFTER INSERT ON owners
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

-- The row of a removed owner proves that it was here and is gone, also after its
-- kind is: the event says so, and whether the owner was in a namespace.
DROP TRIGGER objects_removed_track;
CREATE TRIGGER objects_removed_track AFTER DELETE ON objects
WHEN EXISTS (SELECT 1 FROM owners WHERE owner_uid = OLD.uid)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (OLD.uid, 0, 0, CASE WHEN OLD.namespace = '' THEN 'cluster_owner_removed' ELSE 'owner_removed' END, unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

-- So a later reference to it leaves the event as it is.
DROP TRIGGER owners_added_track;
CREATE TRIGGER owners_added_track AFTER INSERT ON owners
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
