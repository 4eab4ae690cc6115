-- A batch of manifests is deleted in sets: what it leaves without a keeper is
-- looked for once for all of them, by an index for each, and no row of a queue
-- is written twice.

-- The functions that are called for one row as for hundreds keep one plan: a
-- plan for one is always the cheaper one, and was made anew for each push.
ALTER FUNCTION gc_enqueue_manifests SET plan_cache_mode = force_generic_plan SET enable_seqscan = off;

-- A row that is not claimed, and that says the same already, stays as it is.
CREATE OR REPLACE FUNCTION gc_enqueue_blobs(digests text[], e text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    at    bigint := gc_now();
    delay bigint := greatest(gc_review_delay(e), gc_review_delay('existence_check'));
BEGIN
    INSERT INTO gc_blob_review_queue AS q (digest, review_after, review_count, event, created_at)
    SELECT s.d, at + delay + floor(random() * least(delay / 10, 60000))::bigint, 0, e, at
    FROM (SELECT DISTINCT x COLLATE "C" AS d FROM unnest(digests) AS x WHERE x IS NOT NULL ORDER BY 1) AS s
    ON CONFLICT (digest) DO UPDATE SET
        review_after = greatest(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL
    WHERE q.claim_token IS NOT NULL OR q.event <> e OR q.review_after < at + delay;
END
$$;

CREATE OR REPLACE FUNCTION gc_order_deleted_manifests(ids bigint[]) RETURNS void LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    left_alone bigint[];
BEGIN
    PERFORM gc_enqueue_blobs(ARRAY(
        SELECT l.digest FROM layers l WHERE l.manifest_id = ANY (ids)
        UNION ALL
        SELECT m.configuration_blob_digest FROM manifests m WHERE m.id = ANY (ids)), 'layer_delete');
    left_alone := ARRAY(
        SELECT c.child_id FROM manifest_references c WHERE c.parent_id = ANY (ids)
        UNION ALL
        SELECT f.id FROM manifests m CROSS JOIN LATERAL (
            SELECT r.id FROM manifests r WHERE r.repository_id = m.repository_id AND r.subject_digest = m.digest OFFSET 0) AS f
        WHERE m.id = ANY (ids)
        UNION ALL
        SELECT f.manifest_id FROM manifests m CROSS JOIN unnest(ARRAY['.att', '.sbom', '.sig']) AS suffix CROSS JOIN LATERAL (
            SELECT t.manifest_id FROM tags t
            WHERE t.repository_id = m.repository_id AND t.name = replace(m.digest, ':', '-') || suffix OFFSET 0) AS f
        WHERE m.id = ANY (ids) AND EXISTS (SELECT 1 FROM gc_settings s WHERE s.name = 'signatures' AND s.value));
    IF cardinality(left_alone) > 0 THEN
        PERFORM gc_enqueue_manifests(left_alone, 'manifest_list_delete');
    END IF;
END
$$;

-- Tags of cosign are looked for before they are deleted: a DELETE calls its
-- triggers also when it finds nothing.
CREATE OR REPLACE FUNCTION gc_track_deleted_subjects() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    referrers bigint[] := ARRAY(
        SELECT f.id FROM removed r CROSS JOIN LATERAL (
            SELECT m.id FROM manifests m WHERE m.repository_id = r.repository_id AND m.subject_digest = r.digest OFFSET 0) AS f);
    signature record;
BEGIN
    IF cardinality(referrers) > 0 THEN
        PERFORM gc_enqueue_manifests(referrers, 'subject_delete');
    END IF;
    FOR signature IN
        SELECT f.repository_id, f.name FROM removed r CROSS JOIN unnest(ARRAY['.att', '.sbom', '.sig']) AS suffix CROSS JOIN LATERAL (
            SELECT t.repository_id, t.name FROM tags t
            WHERE t.repository_id = r.repository_id AND t.name = replace(r.digest, ':', '-') || suffix OFFSET 0) AS f
        WHERE EXISTS (SELECT 1 FROM gc_settings s WHERE s.name = 'signatures' AND s.value)
        ORDER BY f.repository_id, f.name
    LOOP
        DELETE FROM tags t WHERE t.repository_id = signature.repository_id AND t.name = signature.name;
    END LOOP;
    RETURN NULL;
END
$$;
DROP TRIGGER gc_track_deleted_subjects_trigger ON manifests;
CREATE TRIGGER gc_track_deleted_subjects_trigger AFTER DELETE ON manifests
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_subjects();
