-- What the registry's collector needs: what is in use, what may not be any
-- more, and the paths whose bytes are to go. The tables, triggers and events
-- have the names of the online garbage collection of GitLab's registry; what
-- that does not have is said where it comes.
--
-- Whoever upserts several rows of a queue does it in the order of the key: two
-- who did it in different orders could wait for each other.
--
-- Where a trigger has a list of rows, it looks each up in an index, by a lateral
-- subselect that OFFSET keeps as it is. Left to itself, the planner, which knows
-- nothing of such lists, reads whole tables for a few rows.

ALTER TABLE repositories ADD COLUMN gc_hold boolean NOT NULL DEFAULT false;
ALTER TABLE repositories ADD COLUMN gc_delay bigint CHECK (gc_delay >= 0);
COMMENT ON COLUMN repositories.gc_hold IS 'nothing of this repository is collected';
COMMENT ON COLUMN repositories.gc_delay IS 'milliseconds from an event to the review of its manifest, in place of the default of the event; null: the default';

CREATE TABLE gc_review_after_defaults (
    event text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL CHECK (value >= 0)
);
COMMENT ON TABLE gc_review_after_defaults IS 'How long after an event its subject is reviewed. existence_check is the least there is for blobs and manifests: what a client was told exists stays for so long.';
COMMENT ON COLUMN gc_review_after_defaults.value IS 'milliseconds; a tenth of it, a minute at most, is added by chance';

INSERT INTO gc_review_after_defaults (event, value) VALUES
    ('blob_upload', 86400000), ('manifest_upload', 86400000), ('manifest_delete', 86400000),
    ('layer_delete', 86400000), ('manifest_list_delete', 86400000), ('tag_delete', 86400000),
    ('tag_switch', 86400000), ('subject_delete', 86400000), ('existence_check', 3600000),
    ('blob_delete', 60000), ('upload_delete', 60000);

CREATE TABLE gc_settings (
    name  text COLLATE "C" PRIMARY KEY,
    value boolean NOT NULL
);
COMMENT ON TABLE gc_settings IS 'Switches that the triggers read. signatures: the tags of cosign go with their image.';

INSERT INTO gc_settings (name, value) VALUES ('signatures', true);

CREATE TABLE gc_blobs_configurations (
    digest                 text COLLATE "C" NOT NULL,
    manifest_id            bigint NOT NULL,
    top_level_namespace_id bigint NOT NULL,
    repository_id          bigint NOT NULL,
    PRIMARY KEY (digest, manifest_id)
);
COMMENT ON TABLE gc_blobs_configurations IS 'Which manifests, of any repository, use a blob as their configuration. Kept by triggers.';

CREATE TABLE gc_blobs_layers (
    digest                 text COLLATE "C" NOT NULL,
    layer_id               bigint NOT NULL,
    top_level_namespace_id bigint NOT NULL,
    repository_id          bigint NOT NULL,
    PRIMARY KEY (digest, layer_id)
);
COMMENT ON TABLE gc_blobs_layers IS 'Which layers, of any repository, are a blob. Kept by triggers.';

CREATE TABLE gc_blob_review_queue (
    digest       text COLLATE "C" PRIMARY KEY,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint
) WITH (fillfactor = 50);
COMMENT ON TABLE gc_blob_review_queue IS 'Blobs that may be unused: every blob that nothing uses is here. See package review for the columns.';

CREATE INDEX gc_blob_review_queue_review_after_idx ON gc_blob_review_queue (review_after);

CREATE TABLE gc_manifest_review_queue (
    manifest               text COLLATE "C" PRIMARY KEY,
    top_level_namespace_id bigint NOT NULL DEFAULT 0,
    repository_id          bigint NOT NULL DEFAULT 0,
    manifest_id            bigint NOT NULL DEFAULT 0,
    review_after           bigint NOT NULL,
    review_count           integer NOT NULL,
    event                  text NOT NULL,
    created_at             bigint NOT NULL,
    last_error             text,
    claim_token            text,
    claim_until            bigint
) WITH (fillfactor = 50);
COMMENT ON TABLE gc_manifest_review_queue IS 'Manifests that nothing may keep: every manifest that nothing keeps is here. See package review for the columns.';
COMMENT ON COLUMN gc_manifest_review_queue.manifest IS 'repository id, @, digest; the ids beside it are for people';

CREATE INDEX gc_manifest_review_queue_review_after_idx ON gc_manifest_review_queue (review_after);

CREATE TABLE gc_unlink_queue (
    path         text COLLATE "C" PRIMARY KEY,
    size         bigint NOT NULL DEFAULT 0,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint
) WITH (fillfactor = 50);
COMMENT ON TABLE gc_unlink_queue IS 'Paths of the blob store that no row names any more: their bytes are to be removed. See package review for the columns.';
COMMENT ON COLUMN gc_unlink_queue.size IS 'bytes, as far as known';

CREATE INDEX gc_unlink_queue_review_after_idx ON gc_unlink_queue (review_after);

CREATE FUNCTION gc_now() RETURNS bigint LANGUAGE sql AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;
COMMENT ON FUNCTION gc_now IS 'Unix milliseconds.';

CREATE FUNCTION gc_jitter(delay bigint) RETURNS bigint LANGUAGE sql AS $$
    SELECT delay + floor(random() * least(delay / 10, 60000))::bigint
$$;
COMMENT ON FUNCTION gc_jitter IS 'A little more than a delay, so that what came together is not reviewed together.';

CREATE FUNCTION gc_review_after(e text, delay bigint DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
    SELECT gc_now() + gc_jitter(greatest(
        coalesce(delay, (SELECT value FROM gc_review_after_defaults WHERE event = e), 86400000),
        coalesce((SELECT value FROM gc_review_after_defaults WHERE event = 'existence_check'), 3600000)))
$$;
COMMENT ON FUNCTION gc_review_after IS 'When the subject of an event is reviewed: after the delay of its repository, or of the event, or a day, but not before what existence checks promise.';

CREATE FUNCTION gc_unlink_after(e text) RETURNS bigint LANGUAGE sql AS $$
    SELECT gc_now() + gc_jitter(coalesce((SELECT value FROM gc_review_after_defaults WHERE event = e), 60000))
$$;
COMMENT ON FUNCTION gc_unlink_after IS 'When bytes are removed: requests that have just read their path may still open them.';

-- The later time wins: each event, and each existence check, says "not before".

CREATE FUNCTION gc_enqueue_blobs(digests text[], e text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO gc_blob_review_queue AS q (digest, review_after, review_count, event, created_at)
    SELECT d, gc_review_after(e), 0, e, gc_now()
    FROM (SELECT DISTINCT x COLLATE "C" AS d FROM unnest(digests) AS x WHERE x IS NOT NULL ORDER BY 1) AS s
    ON CONFLICT (digest) DO UPDATE SET
        review_after = greatest(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL
$$;
COMMENT ON FUNCTION gc_enqueue_blobs IS 'Puts blobs under review; a review that has begun is repeated.';

CREATE FUNCTION gc_enqueue_manifests(ids bigint[], e text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO gc_manifest_review_queue AS q
        (manifest, top_level_namespace_id, repository_id, manifest_id, review_after, review_count, event, created_at)
    SELECT s.key, s.top_level_namespace_id, s.repository_id, s.id, gc_review_after(e, s.gc_delay), 0, e, gc_now()
    FROM (
        SELECT (m.repository_id || '@' || m.digest) COLLATE "C" AS key, m.top_level_namespace_id, m.repository_id, m.id, r.gc_delay
        FROM manifests m JOIN repositories r ON r.id = m.repository_id
        WHERE m.id = ANY (ids) ORDER BY 1) AS s
    ON CONFLICT (manifest) DO UPDATE SET
        review_after = greatest(q.review_after, excluded.review_after), manifest_id = excluded.manifest_id,
        event = excluded.event, claim_token = NULL, claim_until = NULL
$$;
COMMENT ON FUNCTION gc_enqueue_manifests IS 'Puts manifests under review, those that exist; a review that has begun is repeated.';

CREATE FUNCTION gc_order_deleted_manifests(ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gc_enqueue_blobs(ARRAY(
        SELECT l.digest FROM layers l WHERE l.manifest_id = ANY (ids)
        UNION ALL
        SELECT m.configuration_blob_digest FROM manifests m WHERE m.id = ANY (ids)), 'layer_delete');
    PERFORM gc_enqueue_manifests(ARRAY(
        SELECT c.child_id FROM manifest_references c WHERE c.parent_id = ANY (ids)
        UNION ALL
        SELECT r.id FROM manifests m JOIN manifests r ON r.repository_id = m.repository_id AND r.subject_digest = m.digest
        WHERE m.id = ANY (ids)), 'manifest_list_delete');
END
$$;
COMMENT ON FUNCTION gc_order_deleted_manifests IS 'To be called before manifests are deleted: takes all the rows of the queues that the triggers will write, in order. The triggers alone write those of layers, configurations and lists one after the other.';

CREATE FUNCTION gc_track_blob_uploads() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gc_enqueue_blobs(ARRAY[NEW.digest], 'blob_upload');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_blob_uploads IS 'A blob that was uploaded, for the first time or again, is reviewed: its manifest may never come.';
CREATE TRIGGER gc_track_blob_uploads_trigger AFTER INSERT OR UPDATE ON blobs
    FOR EACH ROW EXECUTE FUNCTION gc_track_blob_uploads();

CREATE FUNCTION gc_track_deleted_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gc_unlink_queue AS q (path, size, review_after, review_count, event, created_at)
    SELECT s.path, s.size, gc_unlink_after('blob_delete'), 0, 'blob_delete', gc_now()
    FROM (SELECT r.path, r.size FROM removed r ORDER BY r.path) AS s
    ON CONFLICT (path) DO UPDATE SET event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_deleted_blobs IS 'Not in spec 2: the bytes of a blob whose row is gone are to go.';
CREATE TRIGGER gc_track_deleted_blobs_trigger AFTER DELETE ON blobs
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_blobs();

CREATE FUNCTION gc_track_moved_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gc_unlink_queue AS q (path, size, review_after, review_count, event, created_at)
    VALUES (OLD.path, OLD.size, gc_unlink_after('blob_delete'), 0, 'blob_delete', gc_now())
    ON CONFLICT (path) DO UPDATE SET event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_moved_blobs IS 'Not in spec 2: bytes that a blob has left behind for others are to go.';
CREATE TRIGGER gc_track_moved_blobs_trigger AFTER UPDATE ON blobs
    FOR EACH ROW WHEN (OLD.path <> NEW.path) EXECUTE FUNCTION gc_track_moved_blobs();

CREATE FUNCTION gc_track_deleted_uploads() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gc_unlink_queue AS q (path, size, review_after, review_count, event, created_at)
    SELECT s.path, s.size, gc_unlink_after('upload_delete'), 0, 'upload_delete', gc_now()
    FROM (
        SELECT r.path, r.size FROM removed r
        WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.path = r.path) ORDER BY r.path) AS s
    ON CONFLICT (path) DO UPDATE SET event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_deleted_uploads IS 'Not in spec 2: the bytes of an upload that did not become a blob are to go: it was cancelled or abandoned, or the blob was there already.';
CREATE TRIGGER gc_track_deleted_uploads_trigger AFTER DELETE ON blob_uploads
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_uploads();

CREATE FUNCTION gc_track_configuration_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gc_blobs_configurations (digest, manifest_id, top_level_namespace_id, repository_id)
    VALUES (NEW.configuration_blob_digest, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (digest, manifest_id) DO NOTHING;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_configuration_blobs IS 'A manifest uses its configuration, if it has one.';
CREATE TRIGGER gc_track_configuration_blobs_trigger AFTER INSERT ON manifests
    FOR EACH ROW WHEN (NEW.configuration_blob_digest IS NOT NULL) EXECUTE FUNCTION gc_track_configuration_blobs();

CREATE FUNCTION gc_track_layer_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gc_blobs_layers (digest, layer_id, top_level_namespace_id, repository_id)
    SELECT a.digest, a.id, a.top_level_namespace_id, a.repository_id FROM added a
    ON CONFLICT (digest, layer_id) DO NOTHING;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_layer_blobs IS 'A manifest uses its layers.';
CREATE TRIGGER gc_track_layer_blobs_trigger AFTER INSERT ON layers
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION gc_track_layer_blobs();

CREATE FUNCTION gc_track_manifest_uploads() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gc_enqueue_manifests(ARRAY[NEW.id], 'manifest_upload');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_manifest_uploads IS 'A manifest that was uploaded, for the first time or again, is reviewed: its tag, list or subject may never come.';
CREATE TRIGGER gc_track_manifest_uploads_trigger AFTER INSERT OR UPDATE ON manifests
    FOR EACH ROW EXECUTE FUNCTION gc_track_manifest_uploads();

CREATE FUNCTION gc_track_deleted_manifests() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gc_blobs_configurations WHERE ctid = ANY (ARRAY(
        SELECT f.ctid FROM removed r CROSS JOIN LATERAL (
            SELECT g.ctid FROM gc_blobs_configurations g
            WHERE g.digest = r.configuration_blob_digest AND g.manifest_id = r.id OFFSET 0) AS f));
    PERFORM gc_enqueue_blobs(array_agg(r.configuration_blob_digest), 'manifest_delete')
    FROM removed r HAVING count(r.configuration_blob_digest) > 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_deleted_manifests IS 'The configuration of a manifest that is gone is reviewed.';
CREATE TRIGGER gc_track_deleted_manifests_trigger AFTER DELETE ON manifests
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_manifests();

CREATE FUNCTION gc_track_deleted_subjects() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    referrers bigint[] := ARRAY(
        SELECT m.id FROM manifests m WHERE m.repository_id = OLD.repository_id AND m.subject_digest = OLD.digest);
    image text := replace(OLD.digest, ':', '-');
BEGIN
    IF cardinality(referrers) > 0 THEN
        PERFORM gc_enqueue_manifests(referrers, 'subject_delete');
    END IF;
    DELETE FROM tags t
    WHERE t.repository_id = OLD.repository_id AND t.name IN (image || '.att', image || '.sbom', image || '.sig')
        AND EXISTS (SELECT 1 FROM gc_settings s WHERE s.name = 'signatures' AND s.value);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_deleted_subjects IS 'Not in spec 2: what refers to a manifest that is gone is reviewed, and the tags that cosign made for it go.';
CREATE TRIGGER gc_track_deleted_subjects_trigger AFTER DELETE ON manifests
    FOR EACH ROW EXECUTE FUNCTION gc_track_deleted_subjects();

CREATE FUNCTION gc_track_deleted_layers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gc_blobs_layers WHERE ctid = ANY (ARRAY(
        SELECT f.ctid FROM removed r CROSS JOIN LATERAL (
            SELECT g.ctid FROM gc_blobs_layers g WHERE g.digest = r.digest AND g.layer_id = r.id OFFSET 0) AS f));
    PERFORM gc_enqueue_blobs(array_agg(r.digest), 'layer_delete') FROM removed r HAVING count(*) > 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_deleted_layers IS 'The layers of a manifest that is gone are reviewed.';
CREATE TRIGGER gc_track_deleted_layers_trigger AFTER DELETE ON layers
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_layers();

CREATE FUNCTION gc_track_deleted_manifest_lists() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gc_enqueue_manifests(array_agg(r.child_id), 'manifest_list_delete') FROM removed r HAVING count(*) > 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_deleted_manifest_lists IS 'The manifests of a list that is gone are reviewed.';
CREATE TRIGGER gc_track_deleted_manifest_lists_trigger AFTER DELETE ON manifest_references
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_manifest_lists();

CREATE FUNCTION gc_track_deleted_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gc_enqueue_manifests(array_agg(r.manifest_id), 'tag_delete') FROM removed r HAVING count(*) > 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_deleted_tags IS 'A manifest that has lost a tag is reviewed, unless it is gone itself.';
CREATE TRIGGER gc_track_deleted_tags_trigger AFTER DELETE ON tags
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_tags();

CREATE FUNCTION gc_track_switched_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gc_enqueue_manifests(ARRAY[OLD.manifest_id], 'tag_switch');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_switched_tags IS 'A manifest whose tag was given to another is reviewed.';
CREATE TRIGGER gc_track_switched_tags_trigger AFTER UPDATE OF manifest_id ON tags
    FOR EACH ROW WHEN (OLD.manifest_id <> NEW.manifest_id) EXECUTE FUNCTION gc_track_switched_tags();
