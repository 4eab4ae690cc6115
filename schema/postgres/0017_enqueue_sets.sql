-- How long until a review is looked up once for all that is enqueued together,
-- and not for each row. PL/pgSQL keeps the plans, which a function in SQL makes
-- anew whenever it is called.

CREATE FUNCTION gc_review_delay(e text) RETURNS bigint STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((SELECT d.value FROM gc_review_after_defaults d WHERE d.event = e),
        CASE e WHEN 'existence_check' THEN 3600000 ELSE 86400000 END);
END
$$;
COMMENT ON FUNCTION gc_review_delay IS 'How long after an event its subject is reviewed, in milliseconds.';

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
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END
$$;

CREATE OR REPLACE FUNCTION gc_enqueue_manifests(ids bigint[], e text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    at      bigint := gc_now();
    usual   bigint := gc_review_delay(e);
    atleast bigint := gc_review_delay('existence_check');
BEGIN
    INSERT INTO gc_manifest_review_queue AS q
        (manifest, top_level_namespace_id, repository_id, manifest_id, review_after, review_count, event, created_at)
    SELECT s.key, s.top_level_namespace_id, s.repository_id, s.id,
        at + s.delay + floor(random() * least(s.delay / 10, 60000))::bigint, 0, e, at
    FROM (
        SELECT (m.repository_id || '@' || m.digest) COLLATE "C" AS key, m.top_level_namespace_id, m.repository_id, m.id,
            greatest(coalesce(r.gc_delay, usual), atleast) AS delay
        FROM manifests m JOIN repositories r ON r.id = m.repository_id
        WHERE m.id = ANY (ids) ORDER BY 1) AS s
    ON CONFLICT (manifest) DO UPDATE SET
        review_after = greatest(q.review_after, excluded.review_after), manifest_id = excluded.manifest_id,
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END
$$;

CREATE OR REPLACE FUNCTION gc_track_deleted_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    at    bigint := gc_now();
    delay bigint := coalesce((SELECT d.value FROM gc_review_after_defaults d WHERE d.event = 'blob_delete'), 60000);
BEGIN
    INSERT INTO gc_unlink_queue AS q (path, size, review_after, review_count, event, created_at)
    SELECT s.path, s.size, at + delay + floor(random() * least(delay / 10, 60000))::bigint, 0, 'blob_delete', at
    FROM (SELECT r.path, r.size FROM removed r WHERE NOT r.small ORDER BY r.path) AS s
    ON CONFLICT (path) DO UPDATE SET event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$$;

-- Tags of cosign are looked for before they are deleted: a DELETE calls its
-- triggers also when it finds nothing.
CREATE OR REPLACE FUNCTION gc_track_deleted_subjects() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    referrers bigint[] := ARRAY(
        SELECT m.id FROM manifests m WHERE m.repository_id = OLD.repository_id AND m.subject_digest = OLD.digest);
    image text := replace(OLD.digest, ':', '-');
    names text[] := ARRAY[image || '.att', image || '.sbom', image || '.sig'];
BEGIN
    IF cardinality(referrers) > 0 THEN
        PERFORM gc_enqueue_manifests(referrers, 'subject_delete');
    END IF;
    IF EXISTS (SELECT 1 FROM tags t WHERE t.repository_id = OLD.repository_id AND t.name = ANY (names)) THEN
        DELETE FROM tags t
        WHERE t.repository_id = OLD.repository_id AND t.name = ANY (names)
            AND EXISTS (SELECT 1 FROM gc_settings s WHERE s.name = 'signatures' AND s.value);
    END IF;
    RETURN NULL;
END
$$;
