-- An owner is kind, name and uid. A row of owners says all that its reference
-- does, so that a reference to another object than the one with its uid is found
-- without reading the dependent's body. The group comes without a version: all
-- versions of a kind are the same objects.
ALTER TABLE owners ADD COLUMN owner_group text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE owners ADD COLUMN owner_kind text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE owners ADD COLUMN owner_name text COLLATE "C" NOT NULL DEFAULT '';

UPDATE owners w SET
    owner_group = CASE WHEN position('/' IN r.value ->> 'apiVersion') > 0 THEN split_part(r.value ->> 'apiVersion', '/', 1) ELSE '' END,
    owner_kind = coalesce(r.value ->> 'kind', ''),
    owner_name = coalesce(r.value ->> 'name', '')
FROM objects d JOIN changes c ON c.revision = d.revision
    CROSS JOIN LATERAL json_array_elements(CASE WHEN substr(c.body, 1, 1) = '\x7b' -- a body that is sealed is no JSON
        THEN convert_from(c.body, 'UTF8')::json #> '{metadata,ownerReferences}' END) AS r (value)
WHERE d.id = w.dependent AND r.value ->> 'uid' = w.owner_uid;

-- A reference that does not lead to the object with its uid puts the dependent
-- under review: that is in another namespace, or has another name or kind. What
-- plural a kind has only its definition knows. The regular plurals are passed
-- over here; a review of a dependent whose owner's plural is another one finds
-- that nothing is wrong.
CREATE OR REPLACE FUNCTION gc_track_owner_added() RETURNS trigger LANGUAGE plpgsql AS $$
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

-- The row of a removed owner proves that it was here and is gone, also after its
-- kind is: the event says so, and whether the owner was in a namespace.
CREATE OR REPLACE FUNCTION gc_track_objects_removed() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan TO 'off' AS $$
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

-- So a later event of that uid leaves it as it is.
CREATE OR REPLACE FUNCTION gc_enqueue_object(subject text, cause text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO gc_object_reviews AS q (uid, review_after, review_count, event, created_at)
    VALUES (subject, 0, 0, cause, (extract(epoch FROM now()) * 1000)::bigint)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = CASE WHEN q.event IN ('owner_removed', 'cluster_owner_removed') THEN q.event ELSE excluded.event END,
        claim_token = NULL, claim_until = NULL
    WHERE q.claim_token IS NOT NULL OR q.review_after > excluded.review_after OR q.event <> excluded.event
$$;
