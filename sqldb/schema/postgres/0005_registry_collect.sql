-- What the registry's collector needs: which blobs are in use, what may no longer
-- be in use, and the paths whose bytes are to be removed. Tables, triggers and
-- events have the names of the online garbage collection of GitLab's registry; a
-- comment says what that does not have. Then: how a repository follows its
-- object, and what undelete remembers.
--
-- A transaction that writes several rows of a queue writes them in key order, and
-- changes tags after that: transactions in different orders could deadlock.
--
-- Where a trigger has a list of rows, it looks each up in an index, by a lateral
-- subselect that OFFSET keeps as it is. The planner knows nothing of such lists,
-- and would read whole tables for a few rows. PL/pgSQL keeps plans; a function in
-- SQL is planned again at each call.

CREATE TABLE gc_review_after_defaults (
    event text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL CONSTRAINT gc_review_after_defaults_value_check CHECK (value >= 0)
);
COMMENT ON TABLE gc_review_after_defaults IS 'The delay from an event to the review of its subject. existence_check is the minimum for blobs and manifests: what a client was told exists stays for that long.';
COMMENT ON COLUMN gc_review_after_defaults.value IS 'milliseconds; a random part is added: up to a tenth, at most a minute';

INSERT INTO gc_review_after_defaults (event, value) VALUES
    ('blob_upload', 86400000), ('manifest_upload', 86400000), ('manifest_delete', 86400000),
    ('layer_delete', 86400000), ('manifest_list_delete', 86400000), ('tag_delete', 86400000),
    ('tag_switch', 86400000), ('subject_delete', 86400000), ('existence_check', 3600000),
    ('blob_delete', 60000), ('upload_delete', 60000);

CREATE TABLE gc_settings (
    name  text COLLATE "C" PRIMARY KEY,
    value boolean NOT NULL
);
COMMENT ON TABLE gc_settings IS 'Switches that the triggers read. signatures: the tags of cosign are deleted with their image.';

INSERT INTO gc_settings (name, value) VALUES ('signatures', true);

CREATE TABLE gc_blobs_configurations (
    blob_id                bigint NOT NULL CONSTRAINT gc_blobs_configurations_blob_id_fkey REFERENCES blobs (id) ON DELETE RESTRICT,
    manifest_id            bigint NOT NULL,
    top_level_namespace_id bigint NOT NULL,
    repository_id          bigint NOT NULL,
    PRIMARY KEY (blob_id, manifest_id)
);
COMMENT ON TABLE gc_blobs_configurations IS 'Which manifests, of any repository, use a blob as their configuration. Written by triggers. Its foreign key keeps a blob that is in use.';
COMMENT ON COLUMN gc_blobs_configurations.blob_id IS 'RESTRICT: NO ACTION would first look for another blob with this id';

CREATE TABLE gc_blobs_layers (
    blob_id                bigint NOT NULL CONSTRAINT gc_blobs_layers_blob_id_fkey REFERENCES blobs (id) ON DELETE RESTRICT,
    layer_id               bigint NOT NULL,
    top_level_namespace_id bigint NOT NULL,
    repository_id          bigint NOT NULL,
    PRIMARY KEY (blob_id, layer_id)
);
COMMENT ON TABLE gc_blobs_layers IS 'Which layers, of any repository, are a blob. Written by triggers. Its foreign key keeps a blob that is in use.';
COMMENT ON COLUMN gc_blobs_layers.blob_id IS 'RESTRICT: NO ACTION would first look for another blob with this id';

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
COMMENT ON TABLE gc_blob_review_queue IS 'Blobs that may be unused: every unused blob is here. See package review for the columns.';

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
COMMENT ON TABLE gc_manifest_review_queue IS 'Manifests that may be unused: every manifest without tag, list and subject is here. See package review for the columns.';
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
COMMENT ON TABLE gc_unlink_queue IS 'Paths of the blob store that no row names any more: the unlinker removes their bytes. See package review for the columns.';
COMMENT ON COLUMN gc_unlink_queue.size IS 'bytes, as far as known';

CREATE INDEX gc_unlink_queue_review_after_idx ON gc_unlink_queue (review_after);

CREATE TABLE gc_given_back (
    day   bigint PRIMARY KEY,
    bytes bigint NOT NULL
);
COMMENT ON TABLE gc_given_back IS 'How many bytes of the blob store the unlinkers removed on each day.';
COMMENT ON COLUMN gc_given_back.day IS 'Days since 1970, UTC.';

CREATE FUNCTION gc_now() RETURNS bigint LANGUAGE sql AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;
COMMENT ON FUNCTION gc_now IS 'Unix milliseconds.';

CREATE FUNCTION gc_jitter(delay bigint) RETURNS bigint LANGUAGE sql AS $$
    SELECT delay + floor(random() * least(delay / 10, 60000))::bigint
$$;
COMMENT ON FUNCTION gc_jitter IS 'A delay plus a random part, so that what was queued together is not reviewed together.';

CREATE FUNCTION gc_review_delay(e text) RETURNS bigint STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((SELECT d.value FROM gc_review_after_defaults d WHERE d.event = e),
        CASE e WHEN 'existence_check' THEN 3600000 ELSE 86400000 END);
END
$$;
COMMENT ON FUNCTION gc_review_delay IS 'The delay from an event to the review of its subject, in milliseconds.';

CREATE FUNCTION gc_review_after(e text, delay bigint DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN gc_now() + gc_jitter(greatest(
        coalesce(delay, (SELECT value FROM gc_review_after_defaults WHERE event = e), 86400000),
        coalesce((SELECT value FROM gc_review_after_defaults WHERE event = 'existence_check'), 3600000)));
END
$$;
COMMENT ON FUNCTION gc_review_after IS 'When the subject of an event is reviewed: after the delay of its repository, or of the event, or a day, but not before what existence checks promise.';

CREATE FUNCTION gc_unlink_after(e text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN gc_now() + gc_jitter(coalesce((SELECT value FROM gc_review_after_defaults WHERE event = e), 60000));
END
$$;
COMMENT ON FUNCTION gc_unlink_after IS 'When bytes are removed: requests that have just read their path may still open it.';

CREATE FUNCTION gc_enqueue_blobs(digests text[], e text) RETURNS void LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION gc_enqueue_blobs IS 'Puts blobs under review; a review that has begun is repeated. The later time wins: each event, and each existence check, says "not before". A row that is not claimed, and that says the same already, is not written again.';

CREATE FUNCTION gc_enqueue_manifests(ids bigint[], e text) RETURNS void LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
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
            greatest(coalesce((SELECT r.gc_delay FROM repositories r WHERE r.id = m.repository_id), usual), atleast) AS delay
        FROM manifests m
        WHERE m.id = ANY (ids) ORDER BY 1) AS s
    ON CONFLICT (manifest) DO UPDATE SET
        review_after = greatest(q.review_after, excluded.review_after), manifest_id = excluded.manifest_id,
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END
$$;
COMMENT ON FUNCTION gc_enqueue_manifests IS 'Puts manifests under review, those that exist; a review that has begun is repeated. One plan serves one row and hundreds: PostgreSQL would otherwise plan each push again.';

CREATE FUNCTION gc_digests(ids bigint[]) RETURNS text[] LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    RETURN ARRAY(SELECT b.digest FROM blobs b WHERE b.id = ANY (ids));
END
$$;
COMMENT ON FUNCTION gc_digests IS 'The digests of blobs.';

CREATE FUNCTION gc_order_deleted_manifests(ids bigint[]) RETURNS void LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    left_alone bigint[];
BEGIN
    PERFORM gc_enqueue_blobs(gc_digests(ARRAY(
        SELECT l.blob_id FROM layers l WHERE l.manifest_id = ANY (ids)
        UNION ALL
        SELECT m.configuration_blob_id FROM manifests m WHERE m.id = ANY (ids))), 'layer_delete');
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
COMMENT ON FUNCTION gc_order_deleted_manifests IS 'To be called before manifests are deleted: writes all the queue rows that the triggers will write, in key order. The triggers alone write those of layers, configurations and lists one after the other.';

CREATE FUNCTION gc_order_tags(repository bigint, names text[], pushed text) RETURNS void LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(s.key) FROM (
        SELECT DISTINCT hashtextextended(repository || '@' || x, 0) AS key
        FROM unnest(names || pushed) AS x WHERE x IS NOT NULL ORDER BY 1) AS s;
    IF pushed IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM unnest(names) AS x CROSS JOIN LATERAL (
            SELECT 1 FROM tags t JOIN manifests m ON m.id = t.manifest_id
            WHERE t.repository_id = repository AND t.name = x AND m.digest <> pushed OFFSET 0) AS f) THEN
        RETURN;
    END IF;
    PERFORM 1 FROM manifests m WHERE m.repository_id = repository AND m.digest = pushed FOR NO KEY UPDATE;
    INSERT INTO gc_manifest_review_queue AS q
        (manifest, top_level_namespace_id, repository_id, manifest_id, review_after, review_count, event, created_at)
    SELECT s.key, s.top_level_namespace_id, s.repository_id, s.id, gc_review_after(s.event, s.gc_delay), 0, s.event, gc_now()
    FROM (
        SELECT (m.repository_id || '@' || m.digest) COLLATE "C" AS key, m.top_level_namespace_id, m.repository_id, m.id,
            (SELECT r.gc_delay FROM repositories r WHERE r.id = m.repository_id) AS gc_delay,
            CASE WHEN pushed IS NULL THEN 'tag_delete' WHEN m.digest = pushed THEN 'manifest_upload' ELSE 'tag_switch' END AS event
        FROM manifests m
        WHERE m.id = ANY (ARRAY(
            SELECT f.id FROM manifests f WHERE f.repository_id = repository AND f.digest = pushed
            UNION ALL
            SELECT f.manifest_id FROM unnest(names) AS x CROSS JOIN LATERAL (
                SELECT t.manifest_id FROM tags t WHERE t.repository_id = repository AND t.name = x OFFSET 0) AS f))
        ORDER BY 1) AS s
    ON CONFLICT (manifest) DO UPDATE SET
        review_after = greatest(q.review_after, excluded.review_after), manifest_id = excluded.manifest_id,
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END
$$;
COMMENT ON FUNCTION gc_order_tags IS 'To be called before tags are pointed at the manifest with the digest pushed, or, if that is null, deleted: writes all the queue rows that the triggers will write, in key order. The locks on the names keep what the tags point at; the lock on the digest stands for a manifest that does not exist yet.';

CREATE FUNCTION gc_track_blob_uploads() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gc_enqueue_blobs(ARRAY[NEW.digest], 'blob_upload');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_blob_uploads IS 'An uploaded blob is reviewed, the first time and each time again: its manifest may never come.';
CREATE TRIGGER gc_track_blob_uploads_trigger AFTER INSERT OR UPDATE ON blobs
    FOR EACH ROW EXECUTE FUNCTION gc_track_blob_uploads();

CREATE FUNCTION gc_track_deleted_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION gc_track_deleted_blobs IS 'Not in GitLab''s registry: the bytes of a deleted blob are removed later. Those of a small blob are deleted with its row.';
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
COMMENT ON FUNCTION gc_track_moved_blobs IS 'Not in GitLab''s registry: the old bytes of a blob that got new ones are removed.';
CREATE TRIGGER gc_track_moved_blobs_trigger AFTER UPDATE ON blobs
    FOR EACH ROW WHEN (OLD.path <> NEW.path AND NOT OLD.small) EXECUTE FUNCTION gc_track_moved_blobs();

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
COMMENT ON FUNCTION gc_track_deleted_uploads IS 'Not in GitLab''s registry: the bytes of an upload that did not become a blob are removed. It was cancelled or abandoned, or the blob existed already.';
CREATE TRIGGER gc_track_deleted_uploads_trigger AFTER DELETE ON blob_uploads
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_uploads();

CREATE FUNCTION gc_track_configuration_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gc_blobs_configurations (blob_id, manifest_id, top_level_namespace_id, repository_id)
    VALUES (NEW.configuration_blob_id, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (blob_id, manifest_id) DO NOTHING;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_configuration_blobs IS 'A manifest uses its configuration, if it has one.';
CREATE TRIGGER gc_track_configuration_blobs_trigger AFTER INSERT ON manifests
    FOR EACH ROW WHEN (NEW.configuration_blob_id IS NOT NULL) EXECUTE FUNCTION gc_track_configuration_blobs();

CREATE FUNCTION gc_track_layer_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gc_blobs_layers (blob_id, layer_id, top_level_namespace_id, repository_id)
    SELECT a.blob_id, a.id, a.top_level_namespace_id, a.repository_id FROM added a
    ON CONFLICT (blob_id, layer_id) DO NOTHING;
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
COMMENT ON FUNCTION gc_track_manifest_uploads IS 'An uploaded manifest is reviewed, the first time and each time again: its tag, list or subject may never come.';
CREATE TRIGGER gc_track_manifest_uploads_trigger AFTER INSERT OR UPDATE ON manifests
    FOR EACH ROW EXECUTE FUNCTION gc_track_manifest_uploads();

CREATE FUNCTION gc_track_deleted_manifests() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gc_blobs_configurations WHERE ctid = ANY (ARRAY(
        SELECT f.ctid FROM removed r CROSS JOIN LATERAL (
            SELECT g.ctid FROM gc_blobs_configurations g
            WHERE g.blob_id = r.configuration_blob_id AND g.manifest_id = r.id OFFSET 0) AS f));
    PERFORM gc_enqueue_blobs(gc_digests(array_agg(r.configuration_blob_id)), 'manifest_delete')
    FROM removed r HAVING count(r.configuration_blob_id) > 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_deleted_manifests IS 'The configuration of a deleted manifest is reviewed.';
CREATE TRIGGER gc_track_deleted_manifests_trigger AFTER DELETE ON manifests
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_manifests();

CREATE FUNCTION gc_track_deleted_subjects() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
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
COMMENT ON FUNCTION gc_track_deleted_subjects IS 'Not in GitLab''s registry: the referrers of a deleted manifest are reviewed, and the tags that cosign made for it are deleted. The tags are looked for first: a DELETE calls its triggers also when it finds nothing.';
CREATE TRIGGER gc_track_deleted_subjects_trigger AFTER DELETE ON manifests
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_subjects();

CREATE FUNCTION gc_track_deleted_layers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gc_blobs_layers WHERE ctid = ANY (ARRAY(
        SELECT f.ctid FROM removed r CROSS JOIN LATERAL (
            SELECT g.ctid FROM gc_blobs_layers g WHERE g.blob_id = r.blob_id AND g.layer_id = r.id OFFSET 0) AS f));
    PERFORM gc_enqueue_blobs(gc_digests(array_agg(r.blob_id)), 'layer_delete') FROM removed r HAVING count(*) > 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_deleted_layers IS 'The layers of a deleted manifest are reviewed.';
CREATE TRIGGER gc_track_deleted_layers_trigger AFTER DELETE ON layers
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_layers();

CREATE FUNCTION gc_track_deleted_manifest_lists() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gc_enqueue_manifests(array_agg(r.child_id), 'manifest_list_delete') FROM removed r HAVING count(*) > 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_deleted_manifest_lists IS 'The manifests of a deleted list are reviewed.';
CREATE TRIGGER gc_track_deleted_manifest_lists_trigger AFTER DELETE ON manifest_references
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_manifest_lists();

CREATE FUNCTION gc_track_deleted_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gc_enqueue_manifests(array_agg(r.manifest_id), 'tag_delete') FROM removed r HAVING count(*) > 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_deleted_tags IS 'A manifest that lost a tag is reviewed, if it still exists.';
CREATE TRIGGER gc_track_deleted_tags_trigger AFTER DELETE ON tags
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_tags();

CREATE FUNCTION gc_track_switched_tags() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gc_enqueue_manifests(ARRAY[OLD.manifest_id], 'tag_switch');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_switched_tags IS 'A manifest whose tag now points at another manifest is reviewed.';
CREATE TRIGGER gc_track_switched_tags_trigger AFTER UPDATE OF manifest_id ON tags
    FOR EACH ROW WHEN (OLD.manifest_id <> NEW.manifest_id) EXECUTE FUNCTION gc_track_switched_tags();

-- A repository of the registry is also an object: Repository, of
-- registry.exeunt.dev/v1. Triggers on the objects change its row in the
-- transaction that writes the object, so nothing can come between them:
--
--   the object is written     the row is made, or takes over the spec
--   it becomes DELETING       pushes are refused
--   it is removed             the row becomes unreachable, with all its content
--   it is restored            the row becomes what it was
--   it left the archive       the row is reviewed, and its content is deleted
--
-- docs/spec/registry-tracking.md has the argument.

CREATE TABLE gc_repository_review_queue (
    uid          text COLLATE "C" PRIMARY KEY,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint
) WITH (fillfactor = 50);
COMMENT ON TABLE gc_repository_review_queue IS 'Repositories that were removed: their content is deleted when they can no longer be restored. See package review for the columns.';
COMMENT ON COLUMN gc_repository_review_queue.uid IS 'of the Repository';

CREATE INDEX gc_repository_review_queue_review_after_idx ON gc_repository_review_queue (review_after);

CREATE FUNCTION repositories_follow_created() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    spec json := convert_from(NEW.body, 'UTF8')::json -> 'spec';
    home bigint;
BEGIN
    INSERT INTO top_level_namespaces (name, created_at) VALUES (NEW.namespace, gc_now())
    ON CONFLICT (name) DO UPDATE SET name = excluded.name
    RETURNING id INTO home;
    UPDATE repositories SET path = spec ->> 'path', object_uid = NEW.uid, deleting = false, removed_at = NULL
    WHERE path = (SELECT '@' || a.uid FROM archive a WHERE a.restored_as = NEW.uid LIMIT 1)
        AND NOT EXISTS (SELECT 1 FROM repositories r WHERE r.path = spec ->> 'path');
    INSERT INTO repositories (top_level_namespace_id, path, created_at, object_uid, gc_hold, gc_delay)
    VALUES (home, spec ->> 'path', gc_now(), NEW.uid,
        coalesce((spec ->> 'hold')::boolean, false), (spec ->> 'reviewAfterSeconds')::bigint * 1000)
    ON CONFLICT (path) DO UPDATE SET
        object_uid = excluded.object_uid, gc_hold = excluded.gc_hold, gc_delay = excluded.gc_delay;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION repositories_follow_created IS 'A Repository has a row. A restored one gets its old row, with the content.';
CREATE TRIGGER repositories_follow_created_trigger AFTER INSERT ON changes
    FOR EACH ROW WHEN (NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.type = 1)
    EXECUTE FUNCTION repositories_follow_created();

CREATE FUNCTION repositories_follow_updated() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    spec json := convert_from(NEW.body, 'UTF8')::json -> 'spec';
    hold boolean := coalesce((spec ->> 'hold')::boolean, false);
    delay bigint := (spec ->> 'reviewAfterSeconds')::bigint * 1000;
BEGIN
    -- Most changes are of the status, and must not wait for pushes.
    UPDATE repositories r SET gc_hold = hold, gc_delay = delay
    WHERE r.object_uid = NEW.uid AND (r.gc_hold <> hold OR r.gc_delay IS DISTINCT FROM delay);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION repositories_follow_updated IS 'The row takes over what the spec says about collection.';
CREATE TRIGGER repositories_follow_updated_trigger AFTER INSERT ON changes
    FOR EACH ROW WHEN (NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.type = 2)
    EXECUTE FUNCTION repositories_follow_updated();

CREATE FUNCTION repositories_follow_deleting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE repositories SET deleting = true WHERE object_uid = NEW.uid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION repositories_follow_deleting IS 'Pushes to a Repository that is being deleted are refused.';
CREATE TRIGGER repositories_follow_deleting_trigger AFTER UPDATE OF deletion_time ON objects
    FOR EACH ROW WHEN (NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL)
    EXECUTE FUNCTION repositories_follow_deleting();

CREATE FUNCTION repositories_follow_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- The row before the queue, as reviews take them.
    UPDATE repositories SET path = '@' || OLD.uid, deleting = true, removed_at = gc_now(), gc_hold = false
    WHERE object_uid = OLD.uid;
    INSERT INTO gc_repository_review_queue AS q (uid, review_after, review_count, event, created_at)
    SELECT OLD.uid, CASE WHEN EXISTS (SELECT 1 FROM archive a WHERE a.uid = OLD.uid) THEN gc_now() + 3600000 ELSE 0 END,
        0, 'repository_delete', gc_now()
    FROM repositories r WHERE r.object_uid = OLD.uid
    ON CONFLICT (uid) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION repositories_follow_removed IS 'Clients cannot reach the content of a removed Repository. A hold stops collection, not this deletion. While the archive has the object, the review comes after an hour, in case the archive''s own trigger was missed.';
CREATE TRIGGER repositories_follow_removed_trigger AFTER DELETE ON objects
    FOR EACH ROW WHEN (OLD.kind = 'repositories.registry.exeunt.dev')
    EXECUTE FUNCTION repositories_follow_removed();

CREATE FUNCTION repositories_follow_archive() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE gc_repository_review_queue SET review_after = 0, event = 'archive_delete', claim_token = NULL, claim_until = NULL
    WHERE uid = OLD.uid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION repositories_follow_archive IS 'A Repository that can no longer be restored is reviewed.';
CREATE TRIGGER repositories_follow_archive_trigger AFTER DELETE ON archive
    FOR EACH ROW WHEN (OLD.kind = 'repositories.registry.exeunt.dev')
    EXECUTE FUNCTION repositories_follow_archive();

CREATE FUNCTION top_level_namespaces_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE top_level_namespaces SET deleting = (NEW.deletion_time IS NOT NULL)
    WHERE name = NEW.name AND deleting <> (NEW.deletion_time IS NOT NULL);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION top_level_namespaces_follow IS 'Pushes to a namespace that is being deleted are refused.';
CREATE TRIGGER top_level_namespaces_follow_created_trigger AFTER INSERT ON objects
    FOR EACH ROW WHEN (NEW.kind = 'namespaces') EXECUTE FUNCTION top_level_namespaces_follow();
CREATE TRIGGER top_level_namespaces_follow_deleting_trigger AFTER UPDATE OF deletion_time ON objects
    FOR EACH ROW WHEN (NEW.kind = 'namespaces' AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL)
    EXECUTE FUNCTION top_level_namespaces_follow();

-- What clients deleted from the registry, for as long as it can be restored:
-- docs/spec/registry-tracking.md, "Undelete".

CREATE TABLE deleted_tags (
    repository_id bigint NOT NULL CONSTRAINT deleted_tags_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    name          text COLLATE "C" NOT NULL,
    digest        text COLLATE "C" NOT NULL,
    event         text COLLATE "C" NOT NULL,
    deleted_at    bigint NOT NULL,
    PRIMARY KEY (repository_id, name, deleted_at, digest)
);
COMMENT ON TABLE deleted_tags IS 'Tags that were deleted, or point at another manifest now. The manifest may be gone; then they cannot be restored. Deleted by age.';
COMMENT ON COLUMN deleted_tags.digest IS 'of the manifest';
COMMENT ON COLUMN deleted_tags.event IS 'tag_delete, tag_switch or manifest_delete';
COMMENT ON COLUMN deleted_tags.deleted_at IS 'Unix milliseconds';

CREATE INDEX deleted_tags_deleted_at_idx ON deleted_tags (deleted_at);
CREATE INDEX deleted_tags_repository_id_digest_idx ON deleted_tags (repository_id, digest);

CREATE TABLE deleted_manifests (
    repository_id bigint NOT NULL CONSTRAINT deleted_manifests_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    digest        text COLLATE "C" NOT NULL,
    media_type_id bigint NOT NULL CONSTRAINT deleted_manifests_media_type_id_fkey REFERENCES media_types (id),
    payload       bytea NOT NULL,
    deleted_at    bigint NOT NULL,
    PRIMARY KEY (repository_id, digest)
);
COMMENT ON TABLE deleted_manifests IS 'Manifests that were deleted by their digest. Until the reviews of their blobs are due, undelete can push them again from here. Deleted by age.';
COMMENT ON COLUMN deleted_manifests.deleted_at IS 'Unix milliseconds';

CREATE INDEX deleted_manifests_deleted_at_idx ON deleted_manifests (deleted_at);

CREATE FUNCTION tags_deleted_remember() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO deleted_tags (repository_id, name, digest, event, deleted_at)
    SELECT r.repository_id, r.name, m.digest, 'tag_delete', gc_now()
    FROM removed r CROSS JOIN LATERAL (SELECT f.digest FROM manifests f WHERE f.id = r.manifest_id OFFSET 0) AS m
    ON CONFLICT (repository_id, name, deleted_at, digest) DO NOTHING;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tags_deleted_remember IS 'A tag that was deleted can be restored. For a tag that is deleted with its manifest, the statement that deletes the manifest writes the row.';
CREATE TRIGGER tags_deleted_remember_trigger AFTER DELETE ON tags
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION tags_deleted_remember();

CREATE FUNCTION tags_switched_remember() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO deleted_tags (repository_id, name, digest, event, deleted_at)
    SELECT OLD.repository_id, OLD.name, m.digest, 'tag_switch', gc_now() FROM manifests m WHERE m.id = OLD.manifest_id
    ON CONFLICT (repository_id, name, deleted_at, digest) DO NOTHING;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tags_switched_remember IS 'A tag that points at another manifest now can be pointed back.';
CREATE TRIGGER tags_switched_remember_trigger AFTER UPDATE OF manifest_id ON tags
    FOR EACH ROW WHEN (OLD.manifest_id <> NEW.manifest_id) EXECUTE FUNCTION tags_switched_remember();
