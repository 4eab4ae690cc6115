-- Who writes several rows of a queue does so in the order of their keys; who
-- also changes tags does that after. Then nobody who pushes, untags or deletes
-- waits for somebody who waits for him.

CREATE FUNCTION gc_order_tags(repository bigint, names text[], pushed text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(s.key) FROM (
        SELECT DISTINCT hashtextextended(repository || '@' || x, 0) AS key
        FROM unnest(names || pushed) AS x WHERE x IS NOT NULL ORDER BY 1) AS s;
    IF pushed IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM tags t JOIN manifests m ON m.id = t.manifest_id
        WHERE t.repository_id = repository AND t.name = ANY (names) AND m.digest <> pushed) THEN
        RETURN;
    END IF;
    PERFORM 1 FROM manifests m WHERE m.repository_id = repository AND m.digest = pushed FOR NO KEY UPDATE;
    INSERT INTO gc_manifest_review_queue AS q
        (manifest, top_level_namespace_id, repository_id, manifest_id, review_after, review_count, event, created_at)
    SELECT s.key, s.top_level_namespace_id, s.repository_id, s.id, gc_review_after(s.event, s.gc_delay), 0, s.event, gc_now()
    FROM (
        SELECT (m.repository_id || '@' || m.digest) COLLATE "C" AS key, m.top_level_namespace_id, m.repository_id, m.id, r.gc_delay,
            CASE WHEN pushed IS NULL THEN 'tag_delete' WHEN m.digest = pushed THEN 'manifest_upload' ELSE 'tag_switch' END AS event
        FROM manifests m JOIN repositories r ON r.id = m.repository_id
        WHERE m.repository_id = repository AND (m.digest = pushed OR m.id = ANY (ARRAY(
            SELECT t.manifest_id FROM tags t WHERE t.repository_id = repository AND t.name = ANY (names))))
        ORDER BY 1) AS s
    ON CONFLICT (manifest) DO UPDATE SET
        review_after = greatest(q.review_after, excluded.review_after), manifest_id = excluded.manifest_id,
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END
$$;
COMMENT ON FUNCTION gc_order_tags IS 'To be called before tags are pointed at the manifest with the digest pushed, or, if that is null, deleted: takes all the rows of the queue that the triggers will write, in order. The locks on the names keep what the tags point at; that on the digest stands for a manifest that is not there yet.';

CREATE OR REPLACE FUNCTION gc_order_deleted_manifests(ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gc_enqueue_blobs(ARRAY(
        SELECT l.digest FROM layers l WHERE l.manifest_id = ANY (ids)
        UNION ALL
        SELECT m.configuration_blob_digest FROM manifests m WHERE m.id = ANY (ids)), 'layer_delete');
    PERFORM gc_enqueue_manifests(ARRAY(
        SELECT c.child_id FROM manifest_references c WHERE c.parent_id = ANY (ids)
        UNION ALL
        SELECT r.id FROM manifests m JOIN manifests r ON r.repository_id = m.repository_id AND r.subject_digest = m.digest
        WHERE m.id = ANY (ids)
        UNION ALL
        SELECT t.manifest_id FROM manifests m JOIN tags t ON t.repository_id = m.repository_id AND t.name = ANY (ARRAY[
            replace(m.digest, ':', '-') || '.att', replace(m.digest, ':', '-') || '.sbom', replace(m.digest, ':', '-') || '.sig'])
        WHERE m.id = ANY (ids) AND EXISTS (SELECT 1 FROM gc_settings s WHERE s.name = 'signatures' AND s.value)), 'manifest_list_delete');
END
$$;
