-- The current schema. Written by `go generate ./schema`: do not edit.

CREATE OR REPLACE FUNCTION public.archive_cascades_follow_archive()
 RETURNS trigger
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
BEGIN
    UPDATE archive_cascades c SET objects = c.objects - g.objects, bytes = c.bytes - g.bytes
    FROM (SELECT cascade, count(*) AS objects, sum(size) AS bytes FROM gone WHERE id <= (SELECT revision FROM archive_counted) GROUP BY cascade) g
    WHERE c.id = g.cascade;
    DELETE FROM archive_cascades c USING (SELECT DISTINCT cascade FROM gone) g
    WHERE c.id = g.cascade AND c.objects = 0 AND c.leaving IS NULL
        AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.cascade = g.cascade AND a.cascade <> a.uid)
        AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.uid = g.cascade AND a.cascade = a.uid);
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION archive_cascades_follow_archive IS 'Rows that leave are not counted any more. The last one takes its cascade with it.';

CREATE OR REPLACE FUNCTION public.archive_kinds_remember()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO archive_kinds AS k (storage, definition, removed_at, api_group, api_version, kind, plural, singular, short_names, namespaced)
    SELECT d.name, d.uid, d.removed_at, d.api_group, d.api_version, d.kind, d.plural, d.singular, d.short_names, d.namespaced
    FROM archive_definitions d WHERE d.id = NEW.id AND d.api_group IS NOT NULL AND d.kind IS NOT NULL AND d.plural IS NOT NULL
    ON CONFLICT (storage) DO UPDATE SET
        definition = excluded.definition, removed_at = excluded.removed_at, api_group = excluded.api_group,
        api_version = excluded.api_version, kind = excluded.kind, plural = excluded.plural, singular = excluded.singular,
        short_names = excluded.short_names, namespaced = excluded.namespaced;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION archive_kinds_remember IS 'The archive keeps the names of the kind of an archived definition.';

CREATE OR REPLACE FUNCTION public.blobs_leave_database()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    DELETE FROM small_blobs WHERE blob_id = OLD.id;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION blobs_leave_database IS 'A small blob was damaged, and its next upload went to the blob store.';

CREATE OR REPLACE FUNCTION public.broker_enqueue(subject text, cause text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO provisioned_resource_reviews AS q (id, review_after, review_count, event, created_at)
    VALUES (subject, 0, 0, cause, (extract(epoch FROM now()) * 1000)::bigint)
    ON CONFLICT (id) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END
$function$;

COMMENT ON FUNCTION broker_enqueue IS 'Puts a resource under review by the reconcile loop; a review that has begun is repeated.';

CREATE OR REPLACE FUNCTION public.broker_track_declaration()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM broker_enqueue(OLD.uid, 'declaration_removed');
    ELSIF TG_OP = 'INSERT' THEN
        PERFORM broker_enqueue(NEW.uid, 'declared');
    ELSE
        PERFORM broker_enqueue(NEW.uid, 'deletion_requested');
    END IF;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION broker_track_declaration IS 'The reconcile loop looks at a resource that is declared, is to be deleted, or whose object was removed without its finalizer. The loop itself writes the status of the object, so a status does not bring it back.';

CREATE OR REPLACE FUNCTION public.broker_track_outbox()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO provisioned_resource_outbox_reviews AS q (resource_id, review_after, review_count, event, created_at)
    VALUES (NEW.resource_id, 0, 0, 'emitted', (extract(epoch FROM now()) * 1000)::bigint)
    ON CONFLICT (resource_id) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION broker_track_outbox IS 'An event is published as soon as it is committed.';

CREATE OR REPLACE FUNCTION public.broker_track_resource()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    PERFORM broker_enqueue(NEW.id, CASE TG_OP WHEN 'INSERT' THEN 'created' ELSE 'phase_changed' END);
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION broker_track_resource IS 'The reconcile loop looks at once at a resource that is new or has reached another phase.';

CREATE OR REPLACE FUNCTION public.gc_digests(ids bigint[])
 RETURNS text[]
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
AS $function$
BEGIN
    RETURN ARRAY(SELECT b.digest FROM blobs b WHERE b.id = ANY (ids));
END
$function$;

COMMENT ON FUNCTION gc_digests IS 'The digests of blobs.';

CREATE OR REPLACE FUNCTION public.gc_enqueue_blobs(digests text[], e text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
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
$function$;

COMMENT ON FUNCTION gc_enqueue_blobs IS 'Puts blobs under review; a review that has begun is repeated. The later time wins: each event, and each existence check, says "not before". A row that is not claimed, and that says the same already, is not written again.';

CREATE OR REPLACE FUNCTION public.gc_enqueue_manifests(ids bigint[], e text)
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
AS $function$
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
$function$;

COMMENT ON FUNCTION gc_enqueue_manifests IS 'Puts manifests under review, those that exist; a review that has begun is repeated. One plan serves one row and hundreds: PostgreSQL would otherwise plan each push again.';

CREATE OR REPLACE FUNCTION public.gc_enqueue_object(subject text, cause text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO gc_object_reviews AS q (uid, review_after, review_count, event, created_at)
    VALUES (subject, 0, 0, cause, (extract(epoch FROM now()) * 1000)::bigint)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = CASE WHEN q.event IN ('owner_removed', 'cluster_owner_removed') THEN q.event ELSE excluded.event END,
        claim_token = NULL, claim_until = NULL
    WHERE q.claim_token IS NOT NULL OR q.review_after > excluded.review_after OR q.event <> excluded.event;
END
$function$;

COMMENT ON FUNCTION gc_enqueue_object IS 'Puts an object under review; a review that has begun is repeated. The event of a removed owner stays: it is proof that the owner existed. A row that is already queued like this is not written again. In plpgsql, as all functions with statements: PostgreSQL plans those of functions in SQL again for each call.';

CREATE OR REPLACE FUNCTION public.gc_jitter(delay bigint)
 RETURNS bigint
 LANGUAGE sql
AS $function$
    SELECT delay + floor(random() * least(delay / 10, 60000))::bigint
$function$;

COMMENT ON FUNCTION gc_jitter IS 'A delay plus a random part, so that what was queued together is not reviewed together.';

CREATE OR REPLACE FUNCTION public.gc_now()
 RETURNS bigint
 LANGUAGE sql
AS $function$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$function$;

COMMENT ON FUNCTION gc_now IS 'Unix milliseconds.';

CREATE OR REPLACE FUNCTION public.gc_order_deleted_manifests(ids bigint[])
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
AS $function$
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
$function$;

COMMENT ON FUNCTION gc_order_deleted_manifests IS 'To be called before manifests are deleted: writes all the queue rows that the triggers will write, in key order. The triggers alone write those of layers, configurations and lists one after the other.';

CREATE OR REPLACE FUNCTION public.gc_order_tags(repository bigint, names text[], pushed text)
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
AS $function$
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
$function$;

COMMENT ON FUNCTION gc_order_tags IS 'To be called before tags are pointed at the manifest with the digest pushed, or, if that is null, deleted: writes all the queue rows that the triggers will write, in key order. The locks on the names keep what the tags point at; the lock on the digest stands for a manifest that does not exist yet.';

CREATE OR REPLACE FUNCTION public.gc_review_after(e text, delay bigint DEFAULT NULL::bigint)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
BEGIN
    RETURN gc_now() + gc_jitter(greatest(
        coalesce(delay, (SELECT value FROM gc_review_after_defaults WHERE event = e), 86400000),
        coalesce((SELECT value FROM gc_review_after_defaults WHERE event = 'existence_check'), 3600000)));
END
$function$;

COMMENT ON FUNCTION gc_review_after IS 'When the subject of an event is reviewed: after the delay of its repository, or of the event, or a day, but not before what existence checks promise.';

CREATE OR REPLACE FUNCTION public.gc_review_delay(e text)
 RETURNS bigint
 LANGUAGE plpgsql
 STABLE
AS $function$
BEGIN
    RETURN coalesce((SELECT d.value FROM gc_review_after_defaults d WHERE d.event = e),
        CASE e WHEN 'existence_check' THEN 3600000 ELSE 86400000 END);
END
$function$;

COMMENT ON FUNCTION gc_review_delay IS 'The delay from an event to the review of its subject, in milliseconds.';

CREATE OR REPLACE FUNCTION public.gc_trace()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
DECLARE
    traces jsonb := current_setting('exeunt.traces', true);
BEGIN
    NEW.traceparent := coalesce(traces ->> (to_jsonb(NEW) ->> TG_ARGV[0]), traces ->> '', NEW.traceparent);
    RETURN NEW;
END
$function$;

COMMENT ON FUNCTION gc_trace IS 'Copies the trace of the transaction to a row that it enqueues. The setting exeunt.traces is an object in JSON: from the uid of an object that a client deletes (empty: all subjects) to a traceparent as in W3C Trace Context.';

CREATE OR REPLACE FUNCTION public.gc_track_blob_uploads()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    PERFORM gc_enqueue_blobs(ARRAY[NEW.digest], 'blob_upload');
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION gc_track_blob_uploads IS 'An uploaded blob is reviewed, the first time and each time again: its manifest may never come.';

CREATE OR REPLACE FUNCTION public.gc_track_configuration_blobs()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO gc_blobs_configurations (blob_id, manifest_id, top_level_namespace_id, repository_id)
    VALUES (NEW.configuration_blob_id, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (blob_id, manifest_id) DO NOTHING;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION gc_track_configuration_blobs IS 'A manifest uses its configuration, if it has one.';

CREATE OR REPLACE FUNCTION public.gc_track_deleted_blobs()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$;

COMMENT ON FUNCTION gc_track_deleted_blobs IS 'Not in GitLab''s registry: the bytes of a deleted blob are removed later. Those of a small blob are deleted with its row.';

CREATE OR REPLACE FUNCTION public.gc_track_deleted_layers()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    DELETE FROM gc_blobs_layers WHERE ctid = ANY (ARRAY(
        SELECT f.ctid FROM removed r CROSS JOIN LATERAL (
            SELECT g.ctid FROM gc_blobs_layers g WHERE g.blob_id = r.blob_id AND g.layer_id = r.id OFFSET 0) AS f));
    PERFORM gc_enqueue_blobs(gc_digests(array_agg(r.blob_id)), 'layer_delete') FROM removed r HAVING count(*) > 0;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION gc_track_deleted_layers IS 'The layers of a deleted manifest are reviewed.';

CREATE OR REPLACE FUNCTION public.gc_track_deleted_manifest_lists()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    PERFORM gc_enqueue_manifests(array_agg(r.child_id), 'manifest_list_delete') FROM removed r HAVING count(*) > 0;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION gc_track_deleted_manifest_lists IS 'The manifests of a deleted list are reviewed.';

CREATE OR REPLACE FUNCTION public.gc_track_deleted_manifests()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    DELETE FROM gc_blobs_configurations WHERE ctid = ANY (ARRAY(
        SELECT f.ctid FROM removed r CROSS JOIN LATERAL (
            SELECT g.ctid FROM gc_blobs_configurations g
            WHERE g.blob_id = r.configuration_blob_id AND g.manifest_id = r.id OFFSET 0) AS f));
    PERFORM gc_enqueue_blobs(gc_digests(array_agg(r.configuration_blob_id)), 'manifest_delete')
    FROM removed r HAVING count(r.configuration_blob_id) > 0;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION gc_track_deleted_manifests IS 'The configuration of a deleted manifest is reviewed.';

CREATE OR REPLACE FUNCTION public.gc_track_deleted_subjects()
 RETURNS trigger
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
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
$function$;

COMMENT ON FUNCTION gc_track_deleted_subjects IS 'Not in GitLab''s registry: the referrers of a deleted manifest are reviewed, and the tags that cosign made for it are deleted. The tags are looked for first: a DELETE calls its triggers also when it finds nothing.';

CREATE OR REPLACE FUNCTION public.gc_track_deleted_tags()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    PERFORM gc_enqueue_manifests(array_agg(r.manifest_id), 'tag_delete') FROM removed r HAVING count(*) > 0;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION gc_track_deleted_tags IS 'A manifest that lost a tag is reviewed, if it still exists.';

CREATE OR REPLACE FUNCTION public.gc_track_deleted_uploads()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO gc_unlink_queue AS q (path, size, review_after, review_count, event, created_at)
    SELECT s.path, s.size, gc_unlink_after('upload_delete'), 0, 'upload_delete', gc_now()
    FROM (
        SELECT r.path, r.size FROM removed r
        WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.path = r.path) ORDER BY r.path) AS s
    ON CONFLICT (path) DO UPDATE SET event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION gc_track_deleted_uploads IS 'Not in GitLab''s registry: the bytes of an upload that did not become a blob are removed. It was cancelled or abandoned, or the blob existed already.';

CREATE OR REPLACE FUNCTION public.gc_track_layer_blobs()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO gc_blobs_layers (blob_id, layer_id, top_level_namespace_id, repository_id)
    SELECT a.blob_id, a.id, a.top_level_namespace_id, a.repository_id FROM added a
    ON CONFLICT (blob_id, layer_id) DO NOTHING;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION gc_track_layer_blobs IS 'A manifest uses its layers.';

CREATE OR REPLACE FUNCTION public.gc_track_manifest_uploads()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    PERFORM gc_enqueue_manifests(ARRAY[NEW.id], 'manifest_upload');
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION gc_track_manifest_uploads IS 'An uploaded manifest is reviewed, the first time and each time again: its tag, list or subject may never come.';

CREATE OR REPLACE FUNCTION public.gc_track_moved_blobs()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO gc_unlink_queue AS q (path, size, review_after, review_count, event, created_at)
    VALUES (OLD.path, OLD.size, gc_unlink_after('blob_delete'), 0, 'blob_delete', gc_now())
    ON CONFLICT (path) DO UPDATE SET event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION gc_track_moved_blobs IS 'Not in GitLab''s registry: the old bytes of a blob that got new ones are removed.';

CREATE OR REPLACE FUNCTION public.gc_track_object_deleting()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$;

COMMENT ON FUNCTION gc_track_object_deleting IS 'An object that is DELETING and waits for the collector is reviewed after every change to it; a terminating namespace, for its conditions, when a DELETING object in it changes.';

CREATE OR REPLACE FUNCTION public.gc_track_objects_removed()
 RETURNS trigger
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
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
$function$;

COMMENT ON FUNCTION gc_track_objects_removed IS 'Deletes the references of removed objects. A removed owner is reviewed if it has dependents: its row proves that the owner existed and is gone, also after its kind is gone, and the event says whether it was in a namespace. A terminating namespace is reviewed after removals in it. The index on owner_uid answers whether dependents are left: with EXISTS, PostgreSQL reads the whole primary key for each object when nearly all references name one owner, as in a large cascade.';

CREATE OR REPLACE FUNCTION public.gc_track_owner_added()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$;

COMMENT ON FUNCTION gc_track_owner_added IS 'A reference to an owner that does not exist, or that waits for its dependents, puts that owner under review. A reference puts its dependent under review if the object with its uid is in another namespace, or has another name or kind. Only the definition of a kind knows its plural, so the function accepts the regular plurals. With an irregular plural the review finds that nothing is wrong.';

CREATE OR REPLACE FUNCTION public.gc_track_owners_removed()
 RETURNS trigger
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
BEGIN
    PERFORM gc_enqueue_object(waiting.uid, 'dependent_removed') FROM (
        SELECT o.uid FROM (SELECT DISTINCT g.owner_uid FROM gone g WHERE g.blocking) AS lost
        JOIN objects o ON o.uid = lost.owner_uid AND o.deletion_time IS NOT NULL AND o.finalizing & 2 <> 0
        ORDER BY 1) AS waiting;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION gc_track_owners_removed IS 'An owner that waits for its dependents is reviewed when a blocking dependent is removed, or drops its reference.';

CREATE OR REPLACE FUNCTION public.gc_track_switched_tags()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    PERFORM gc_enqueue_manifests(ARRAY[OLD.manifest_id], 'tag_switch');
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION gc_track_switched_tags IS 'A manifest whose tag now points at another manifest is reviewed.';

CREATE OR REPLACE FUNCTION public.gc_unlink_after(e text)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
BEGIN
    RETURN gc_now() + gc_jitter(coalesce((SELECT value FROM gc_review_after_defaults WHERE event = e), 60000));
END
$function$;

COMMENT ON FUNCTION gc_unlink_after IS 'When bytes are removed: requests that have just read their path may still open it.';

CREATE OR REPLACE FUNCTION public.image_uses_removed()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    UPDATE image_uses SET left_at = gc_now() WHERE uid = OLD.uid AND left_at IS NULL;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION image_uses_removed IS 'What a removed object names is in use until the archive and the history forget it.';

CREATE OR REPLACE FUNCTION public.mesh_enqueue_node(subject text, cause text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO mesh_node_reviews AS q (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, cause, (extract(epoch FROM now()) * 1000)::bigint
    FROM mesh_nodes n WHERE n.uid = subject
    ON CONFLICT (uid) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END
$function$;

COMMENT ON FUNCTION mesh_enqueue_node IS 'Puts a node under review; a review that has begun is repeated.';

CREATE OR REPLACE FUNCTION public.mesh_track_object_deleting()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    PERFORM mesh_enqueue_node(NEW.uid, 'deleting');
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION mesh_track_object_deleting IS 'A node whose object is being deleted is drained.';

CREATE OR REPLACE FUNCTION public.mesh_track_object_removed()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    PERFORM mesh_enqueue_node(OLD.uid, 'removed');
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION mesh_track_object_removed IS 'A node whose object was removed by force is no longer a node.';

CREATE OR REPLACE FUNCTION public.mesh_track_project_removed()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    DELETE FROM bootstrap_tokens WHERE project = OLD.name;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION mesh_track_project_removed IS 'Tokens are deleted with their project: a later one of the same name is another project.';

CREATE OR REPLACE FUNCTION public.registry_bytes(quantity text)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE STRICT
AS $function$
    SELECT least(9223372036854775807, trunc(substring(quantity FROM '^[0-9.]+(?:[eE][+-]?[0-9]+)?')::numeric * CASE substring(quantity FROM '[A-Za-z]+$')
        WHEN 'Ki' THEN 1024::numeric WHEN 'Mi' THEN 1048576 WHEN 'Gi' THEN 1073741824 WHEN 'Ti' THEN 1099511627776
        WHEN 'Pi' THEN 1125899906842624 WHEN 'Ei' THEN 1152921504606846976
        WHEN 'k' THEN 1e3 WHEN 'M' THEN 1e6 WHEN 'G' THEN 1e9 WHEN 'T' THEN 1e12 WHEN 'P' THEN 1e15 WHEN 'E' THEN 1e18
        WHEN 'm' THEN 1e-3 WHEN 'u' THEN 1e-6 WHEN 'n' THEN 1e-9 ELSE 1 END))::bigint
$function$;

COMMENT ON FUNCTION registry_bytes IS 'A quantity of Kubernetes as a number. Null: none.';

CREATE OR REPLACE FUNCTION public.registry_quotas_add(repository bigint, home bigint, added bigint)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
DECLARE
    limits text[] := ARRAY(
        SELECT q.uid FROM registry_quotas q
        WHERE q.uid = (SELECT r.object_uid FROM repositories r WHERE r.id = repository)
            OR q.namespace = (SELECT n.name FROM top_level_namespaces n WHERE n.id = home)
        ORDER BY q.uid FOR UPDATE);
BEGIN
    IF cardinality(limits) = 0 THEN
        RETURN;
    END IF;
    UPDATE registry_quotas SET bytes = bytes + added WHERE uid = ANY (limits);
    IF added > 0 AND EXISTS (SELECT 1 FROM registry_quotas WHERE uid = ANY (limits) AND bytes > most) THEN
        RAISE EXCEPTION 'registry quota';
    END IF;
END
$function$;

COMMENT ON FUNCTION registry_quotas_add IS 'Counts bytes in the limits of a repository and of its namespace, which it locks in order, until the transaction ends. It fails if they do not fit.';

CREATE OR REPLACE FUNCTION public.registry_quotas_collect()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    DELETE FROM repository_blobs WHERE blob_id = OLD.id;
    RETURN OLD;
END
$function$;

COMMENT ON FUNCTION registry_quotas_collect IS 'The links go before the blob, while its size is known.';

CREATE OR REPLACE FUNCTION public.registry_quotas_link()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    PERFORM registry_quotas_add(NEW.repository_id, NEW.top_level_namespace_id, (SELECT b.size FROM blobs b WHERE b.id = NEW.blob_id));
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION registry_quotas_link IS 'A repository got a blob. Its foreign key has locked the repository, so a new limit waits for this transaction, or is seen here: triggers fire in the order of their names, and that of the key is the first.';

CREATE OR REPLACE FUNCTION public.registry_quotas_removed()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    DELETE FROM registry_quotas WHERE uid = OLD.uid;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION registry_quotas_removed IS 'A limit goes with its object.';

CREATE OR REPLACE FUNCTION public.registry_quotas_review()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO quota_reviews (uid, review_after, review_count, event, created_at) VALUES (NEW.uid, 0, 0, 'registry', gc_now())
    ON CONFLICT (uid) DO UPDATE SET review_after = excluded.review_after, event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION registry_quotas_review IS 'The status of the ResourceQuota shows it.';

CREATE OR REPLACE FUNCTION public.registry_quotas_unlink()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
DECLARE
    lost record;
BEGIN
    PERFORM 1 FROM repositories r WHERE r.id IN (SELECT d.repository_id FROM removed d) ORDER BY r.id FOR KEY SHARE;
    IF EXISTS (SELECT 1 FROM registry_quotas) THEN
        FOR lost IN
            SELECT d.repository_id, d.top_level_namespace_id, sum(b.size)::bigint AS size
            FROM removed d JOIN blobs b ON b.id = d.blob_id GROUP BY 1, 2 ORDER BY 1
        LOOP
            PERFORM registry_quotas_add(lost.repository_id, lost.top_level_namespace_id, -lost.size);
        END LOOP;
    END IF;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION registry_quotas_unlink IS 'Repositories lost blobs, which gives their bytes back. The lock on the repositories keeps new limits away, which would count what goes.';

CREATE OR REPLACE FUNCTION public.repositories_follow_archive()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    UPDATE gc_repository_review_queue SET review_after = 0, event = 'archive_delete', claim_token = NULL, claim_until = NULL
    WHERE uid = OLD.uid;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION repositories_follow_archive IS 'A Repository that can no longer be restored is reviewed.';

CREATE OR REPLACE FUNCTION public.repositories_follow_created()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$;

COMMENT ON FUNCTION repositories_follow_created IS 'A Repository has a row. A restored one gets its old row, with the content.';

CREATE OR REPLACE FUNCTION public.repositories_follow_deleting()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    UPDATE repositories SET deleting = true WHERE object_uid = NEW.uid;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION repositories_follow_deleting IS 'Pushes to a Repository that is being deleted are refused.';

CREATE OR REPLACE FUNCTION public.repositories_follow_removed()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$;

COMMENT ON FUNCTION repositories_follow_removed IS 'Clients cannot reach the content of a removed Repository. A hold stops collection, not this deletion. While the archive has the object, the review comes after an hour, in case the archive''s own trigger was missed.';

CREATE OR REPLACE FUNCTION public.repositories_follow_updated()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
$function$;

COMMENT ON FUNCTION repositories_follow_updated IS 'The row takes over what the spec says about collection.';

CREATE OR REPLACE FUNCTION public.repositories_quota()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
DECLARE
    spec json;
    space boolean := NEW.kind = 'resourcequotas';
    limit_bytes bigint;
    home bigint;
BEGIN
    IF position('"registry.exeunt.dev/bytes"'::bytea IN NEW.body) > 0 OR NOT space THEN
        spec := convert_from(NEW.body, 'UTF8')::json -> 'spec';
        limit_bytes := registry_bytes(CASE WHEN space THEN spec -> 'hard' ->> 'registry.exeunt.dev/bytes' ELSE spec ->> 'quota' END);
    END IF;
    IF limit_bytes IS NULL THEN
        DELETE FROM registry_quotas WHERE uid = NEW.uid;
        RETURN NULL;
    END IF;
    UPDATE registry_quotas SET most = limit_bytes WHERE uid = NEW.uid AND most <> limit_bytes;
    IF EXISTS (SELECT 1 FROM registry_quotas WHERE uid = NEW.uid) THEN
        RETURN NULL;
    END IF;
    IF space THEN
        home := (SELECT n.id FROM top_level_namespaces n WHERE n.name = NEW.namespace);
    END IF;
    PERFORM 1 FROM repositories r WHERE r.object_uid = NEW.uid OR r.top_level_namespace_id = home ORDER BY r.id FOR UPDATE;
    INSERT INTO registry_quotas (uid, name, namespace, most, bytes)
    SELECT NEW.uid, CASE WHEN space THEN 'ResourceQuota ' ELSE 'Repository ' END || NEW.name, CASE WHEN space THEN NEW.namespace END, limit_bytes,
        coalesce(sum(b.size), 0)::bigint
    FROM repositories r JOIN repository_blobs x ON x.repository_id = r.id JOIN blobs b ON b.id = x.blob_id
    WHERE r.object_uid = NEW.uid OR r.top_level_namespace_id = home;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION repositories_quota IS 'An object sets, changes or takes away a limit. A new limit begins with what there is: it waits for the transactions that add or remove blobs, and later ones wait for it.';

CREATE OR REPLACE FUNCTION public.tags_day()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO tag_days (repository_id, day, name, was_digest, was_pushed_at)
        SELECT r.id, gc_now() / 86400000, OLD.name, (SELECT w.digest FROM manifests w WHERE w.id = OLD.manifest_id), OLD.updated_at
        FROM repositories r WHERE r.id = OLD.repository_id
        ON CONFLICT (repository_id, day, name) DO UPDATE SET digest = NULL, pushed_at = NULL;
    ELSIF TG_OP = 'INSERT' THEN
        INSERT INTO tag_days (repository_id, day, name, digest, pushed_at)
        SELECT NEW.repository_id, NEW.updated_at / 86400000, NEW.name, m.digest, NEW.updated_at FROM manifests m WHERE m.id = NEW.manifest_id
        ON CONFLICT (repository_id, day, name) DO UPDATE SET digest = excluded.digest, pushed_at = excluded.pushed_at;
    ELSE
        INSERT INTO tag_days (repository_id, day, name, was_digest, was_pushed_at, digest, pushed_at)
        SELECT NEW.repository_id, NEW.updated_at / 86400000, NEW.name, (SELECT w.digest FROM manifests w WHERE w.id = OLD.manifest_id), OLD.updated_at, m.digest, NEW.updated_at
        FROM manifests m WHERE m.id = NEW.manifest_id
        ON CONFLICT (repository_id, day, name) DO UPDATE SET digest = excluded.digest, pushed_at = excluded.pushed_at;
    END IF;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION tags_day IS 'What happened to a tag on a day. A tag that is deleted with its repository gets no row.';

CREATE OR REPLACE FUNCTION public.tags_deleted_remember()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO deleted_tags (repository_id, name, digest, event, deleted_at)
    SELECT r.repository_id, r.name, m.digest, 'tag_delete', gc_now()
    FROM removed r CROSS JOIN LATERAL (SELECT f.digest FROM manifests f WHERE f.id = r.manifest_id OFFSET 0) AS m
    ON CONFLICT (repository_id, name, deleted_at, digest) DO NOTHING;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION tags_deleted_remember IS 'A tag that was deleted can be restored. For a tag that is deleted with its manifest, the statement that deletes the manifest writes the row.';

CREATE OR REPLACE FUNCTION public.tags_switched_remember()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO deleted_tags (repository_id, name, digest, event, deleted_at)
    SELECT OLD.repository_id, OLD.name, m.digest, 'tag_switch', gc_now() FROM manifests m WHERE m.id = OLD.manifest_id
    ON CONFLICT (repository_id, name, deleted_at, digest) DO NOTHING;
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION tags_switched_remember IS 'A tag that points at another manifest now can be pointed back.';

CREATE OR REPLACE FUNCTION public.top_level_namespaces_follow()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    UPDATE top_level_namespaces SET deleting = (NEW.deletion_time IS NOT NULL)
    WHERE name = NEW.name AND deleting <> (NEW.deletion_time IS NOT NULL);
    RETURN NULL;
END
$function$;

COMMENT ON FUNCTION top_level_namespaces_follow IS 'Pushes to a namespace that is being deleted are refused.';

CREATE TABLE archive (
    id bigint NOT NULL,
    uid text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    body_revision bigint,
    removed_at bigint NOT NULL,
    actor text COLLATE "C" NOT NULL,
    cascade text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    restored_as text COLLATE "C",
    requester text COLLATE "C",
    request_id text COLLATE "C",
    body_replaced bigint,
    confirmer text COLLATE "C",
    CONSTRAINT archive_pkey PRIMARY KEY (id)
);

CREATE INDEX archive_cascade_idx ON public.archive USING btree (cascade) WHERE (cascade <> uid);

COMMENT ON INDEX archive_cascade_idx IS 'An object that was removed alone is its own cascade, and is found by its uid.';

CREATE INDEX archive_name_idx ON public.archive USING btree (name, namespace, id);

CREATE INDEX archive_namespace_removed_at_idx ON public.archive USING btree (namespace, removed_at);

CREATE INDEX archive_restored_as_idx ON public.archive USING btree (restored_as) WHERE (restored_as IS NOT NULL);

CREATE INDEX archive_roots_idx ON public.archive USING btree (id) WHERE (substr(cascade, 1, length(uid)) = uid);

COMMENT ON INDEX archive_roots_idx IS 'The objects whose deletion began a cascade, the newest first.';

CREATE INDEX archive_uid_idx ON public.archive USING btree (uid);

CREATE TRIGGER archive_cascades_follow_archive_trigger AFTER DELETE ON public.archive REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION archive_cascades_follow_archive();

CREATE TRIGGER archive_kinds_remember_trigger AFTER INSERT ON public.archive FOR EACH ROW WHEN ((new.kind = 'customresourcedefinitions.apiextensions.k8s.io'::text)) EXECUTE FUNCTION archive_kinds_remember();

CREATE TRIGGER repositories_follow_archive_trigger AFTER DELETE ON public.archive FOR EACH ROW WHEN ((old.kind = 'repositories.registry.exeunt.dev'::text)) EXECUTE FUNCTION repositories_follow_archive();

COMMENT ON TABLE archive IS 'The objects that were removed, until they expire. The body stays where it was, in changes: compaction keeps it while a row here points at it.';

COMMENT ON COLUMN archive.id IS 'the revision of the removal';

COMMENT ON COLUMN archive.namespace IS 'empty: cluster-scoped; a Namespace is in itself';

COMMENT ON COLUMN archive.body_revision IS 'changes.revision of the last body; null: not kept (Secrets)';

COMMENT ON COLUMN archive.removed_at IS 'Unix milliseconds';

COMMENT ON COLUMN archive.actor IS 'who asked for the deletion';

COMMENT ON COLUMN archive.cascade IS 'uid of the object whose deletion was the cause, or an id of a request''s own';

COMMENT ON COLUMN archive.size IS 'bytes of the body';

COMMENT ON COLUMN archive.restored_as IS 'the uid of the object that was last restored from this row';

COMMENT ON COLUMN archive.requester IS 'the client whose delete began the cascade; null: the actor itself';

COMMENT ON COLUMN archive.request_id IS 'the Audit-Id of that delete; null: it was not a request';

COMMENT ON COLUMN archive.body_replaced IS 'the revision that replaced the body; null: the removal. Once it is compacted, only the archive needs the body';

COMMENT ON COLUMN archive.confirmer IS 'as objects.deletion_confirmer';

CREATE TABLE archive_cascades (
    id text NOT NULL,
    namespace text DEFAULT ''::text NOT NULL,
    objects bigint DEFAULT 0 NOT NULL,
    bytes bigint DEFAULT 0 NOT NULL,
    removed_at bigint DEFAULT 0 NOT NULL,
    purged bigint DEFAULT 0 NOT NULL,
    restored_at bigint,
    leaving bigint,
    CONSTRAINT archive_cascades_pkey PRIMARY KEY (id)
);

CREATE INDEX archive_cascades_leaving_idx ON public.archive_cascades USING btree (id) WHERE (leaving IS NOT NULL);

CREATE INDEX archive_cascades_namespace_idx ON public.archive_cascades USING btree (namespace, removed_at, id, bytes) WHERE (leaving IS NULL);

COMMENT ON INDEX archive_cascades_namespace_idx IS 'What may leave, the oldest first, and the bytes of each namespace.';

COMMENT ON TABLE archive_cascades IS 'The cascades that have rows in archive, with the sums of the rows up to archive_counted. A removal writes nothing here: expiry counts the new rows.';

COMMENT ON COLUMN archive_cascades.id IS 'archive.cascade';

COMMENT ON COLUMN archive_cascades.namespace IS 'of its root, whose share of the archive it uses; empty: cluster-scoped; a Namespace is in itself';

COMMENT ON COLUMN archive_cascades.removed_at IS 'of the last row; Unix milliseconds';

COMMENT ON COLUMN archive_cascades.purged IS 'how many of its objects a client purged from the archive';

COMMENT ON COLUMN archive_cascades.restored_at IS 'when an object of it was last restored; Unix milliseconds; null: none was';

COMMENT ON COLUMN archive_cascades.leaving IS 'its rows up to this revision are leaving: they are not listed, cannot be restored, and are deleted in steps; null: none are';

CREATE TABLE archive_counted (
    one integer NOT NULL,
    revision bigint NOT NULL,
    CONSTRAINT archive_counted_one_check CHECK ((one = 1)),
    CONSTRAINT archive_counted_pkey PRIMARY KEY (one)
);

COMMENT ON TABLE archive_counted IS 'How far archive_cascades is: one row.';

COMMENT ON COLUMN archive_counted.revision IS 'the rows of archive up to this id are counted';

CREATE VIEW archive_definitions AS
 SELECT a.id,
    a.name,
    a.uid,
    a.removed_at,
    b.spec ->> 'group'::text AS api_group,
    COALESCE(( SELECT v.value ->> 'name'::text
           FROM json_array_elements(b.spec -> 'versions'::text) v(value)
          WHERE (v.value ->> 'storage'::text)::boolean), 'v1'::text) AS api_version,
    (b.spec -> 'names'::text) ->> 'kind'::text AS kind,
    (b.spec -> 'names'::text) ->> 'plural'::text AS plural,
    COALESCE((b.spec -> 'names'::text) ->> 'singular'::text, lower((b.spec -> 'names'::text) ->> 'kind'::text)) AS singular,
    COALESCE((b.spec -> 'names'::text) ->> 'shortNames'::text, '[]'::text) AS short_names,
    (b.spec ->> 'scope'::text) = 'Namespaced'::text AS namespaced
   FROM archive a
     CROSS JOIN LATERAL ( SELECT convert_from(c.body, 'UTF8'::name)::json -> 'spec'::text AS spec
           FROM changes c
          WHERE c.revision = a.body_revision) b
  WHERE a.kind = 'customresourcedefinitions.apiextensions.k8s.io'::text;

COMMENT ON VIEW archive_definitions IS 'The archived definitions with the names that they declare.';

CREATE TABLE archive_kinds (
    storage text COLLATE "C" NOT NULL,
    definition text COLLATE "C" NOT NULL,
    removed_at bigint NOT NULL,
    api_group text COLLATE "C" NOT NULL,
    api_version text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    plural text COLLATE "C" NOT NULL,
    singular text COLLATE "C" NOT NULL,
    short_names text COLLATE "C" NOT NULL,
    namespaced boolean NOT NULL,
    CONSTRAINT archive_kinds_pkey PRIMARY KEY (storage)
);

COMMENT ON TABLE archive_kinds IS 'The names of custom kinds whose definition was removed, for as long as objects of the kind are in the archive.';

COMMENT ON COLUMN archive_kinds.storage IS 'archive.kind, and the name of the definition';

COMMENT ON COLUMN archive_kinds.definition IS 'uid of the definition';

COMMENT ON COLUMN archive_kinds.removed_at IS 'Unix milliseconds';

COMMENT ON COLUMN archive_kinds.api_version IS 'the one that bodies are stored in';

COMMENT ON COLUMN archive_kinds.short_names IS 'JSON';

CREATE TABLE archive_spans (
    cascade text NOT NULL,
    namespace text NOT NULL,
    CONSTRAINT archive_spans_cascade_fkey FOREIGN KEY (cascade) REFERENCES archive_cascades(id) ON DELETE CASCADE,
    CONSTRAINT archive_spans_pkey PRIMARY KEY (cascade, namespace)
);

COMMENT ON TABLE archive_spans IS 'The other namespaces that objects of a cascade were in.';

CREATE VIEW backup_holds AS
 SELECT backups.id
   FROM backups
  WHERE backups.hold_until > gc_now();

COMMENT ON VIEW backup_holds IS 'The backups that need the bytes of the registry to stay.';

CREATE TABLE backups (
    id text NOT NULL,
    target text NOT NULL,
    began_at bigint NOT NULL,
    hold_until bigint NOT NULL,
    ended_at bigint,
    restored_at bigint,
    progress text DEFAULT ''::text NOT NULL,
    CONSTRAINT backups_pkey PRIMARY KEY (id)
);

COMMENT ON TABLE backups IS 'Backups of this database: those that run, the last that ended, and the one that the database was restored from.';

COMMENT ON COLUMN backups.target IS 'for people';

COMMENT ON COLUMN backups.began_at IS 'Unix milliseconds, as all times here';

COMMENT ON COLUMN backups.hold_until IS 'no bytes are unlinked before this time; the backup extends it while it runs';

COMMENT ON COLUMN backups.ended_at IS 'null: it runs, or was interrupted';

COMMENT ON COLUMN backups.restored_at IS 'null: the database was not restored from it';

COMMENT ON COLUMN backups.progress IS 'how far it is while it runs, as JSON; renewed with the hold';

CREATE TABLE blob_uploads (
    id text COLLATE "C" NOT NULL,
    repository_id bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    algorithm text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    hash_state bytea,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    claim_token text COLLATE "C",
    claim_until bigint,
    store_state bytea,
    CONSTRAINT blob_uploads_path_key UNIQUE (path),
    CONSTRAINT blob_uploads_pkey PRIMARY KEY (id),
    CONSTRAINT blob_uploads_repository_id_fkey FOREIGN KEY (repository_id) REFERENCES repositories(id) ON DELETE CASCADE
);

CREATE INDEX blob_uploads_repository_id_idx ON public.blob_uploads USING btree (repository_id);

CREATE INDEX blob_uploads_updated_at_idx ON public.blob_uploads USING btree (updated_at);

CREATE TRIGGER gc_track_deleted_uploads_trigger AFTER DELETE ON public.blob_uploads REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_uploads();

COMMENT ON TABLE blob_uploads IS 'Uploads that have begun. The row is written before the first byte, and deleted when the upload becomes a blob, or is cancelled or abandoned. Its path is then in blobs, or in the unlink queue.';

COMMENT ON COLUMN blob_uploads.id IS 'random; the client''s handle';

COMMENT ON COLUMN blob_uploads.path IS 'in the blob store';

COMMENT ON COLUMN blob_uploads.algorithm IS 'of hash_state: sha256 or sha512';

COMMENT ON COLUMN blob_uploads.size IS 'bytes that were received and synced';

COMMENT ON COLUMN blob_uploads.hash_state IS 'of the first size bytes; null: of none';

COMMENT ON COLUMN blob_uploads.created_at IS 'Unix milliseconds';

COMMENT ON COLUMN blob_uploads.updated_at IS 'Unix milliseconds; the last sign of life';

COMMENT ON COLUMN blob_uploads.claim_token IS 'of the request that writes; null: none does';

COMMENT ON COLUMN blob_uploads.claim_until IS 'Unix milliseconds';

COMMENT ON COLUMN blob_uploads.store_state IS 'what the blob store needs to continue after the first size bytes, in any process: ids and tags of parts in S3; null: the path is enough';

CREATE TABLE blobs (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    digest text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    media_type_id bigint NOT NULL,
    created_at bigint NOT NULL,
    small boolean DEFAULT false NOT NULL,
    damaged boolean DEFAULT false NOT NULL,
    CONSTRAINT blobs_digest_key UNIQUE (digest),
    CONSTRAINT blobs_media_type_id_fkey FOREIGN KEY (media_type_id) REFERENCES media_types(id),
    CONSTRAINT blobs_path_key UNIQUE (path),
    CONSTRAINT blobs_pkey PRIMARY KEY (id)
);

CREATE TRIGGER blobs_leave_database_trigger AFTER UPDATE ON public.blobs FOR EACH ROW WHEN ((old.small AND (NOT new.small))) EXECUTE FUNCTION blobs_leave_database();

CREATE TRIGGER gc_track_blob_uploads_trigger AFTER INSERT OR UPDATE ON public.blobs FOR EACH ROW EXECUTE FUNCTION gc_track_blob_uploads();

CREATE TRIGGER gc_track_deleted_blobs_trigger AFTER DELETE ON public.blobs REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_blobs();

CREATE TRIGGER gc_track_moved_blobs_trigger AFTER UPDATE ON public.blobs FOR EACH ROW WHEN (((old.path <> new.path) AND (NOT old.small))) EXECUTE FUNCTION gc_track_moved_blobs();

CREATE TRIGGER registry_quotas_collect_trigger BEFORE DELETE ON public.blobs FOR EACH ROW EXECUTE FUNCTION registry_quotas_collect();

COMMENT ON TABLE blobs IS 'Content that was uploaded and verified, once for all repositories. A row is written after the bytes have been synced, and deleted before they are.';

COMMENT ON COLUMN blobs.id IS 'in upload order, so what was pushed together lies together: docs/decisions/0011';

COMMENT ON COLUMN blobs.digest IS 'sha256:… or sha512:…';

COMMENT ON COLUMN blobs.path IS 'in the blob store; one for each upload';

COMMENT ON COLUMN blobs.created_at IS 'Unix milliseconds';

COMMENT ON COLUMN blobs.small IS 'the bytes are in small_blobs';

COMMENT ON COLUMN blobs.damaged IS 'found by exeunt registry verify --repair; not served, and replaced by the next upload';

CREATE TABLE bootstrap_tokens (
    id text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL,
    hash text NOT NULL,
    state text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    expires_at bigint NOT NULL,
    ended_at bigint DEFAULT 0 NOT NULL,
    nonce text COLLATE "C",
    node text DEFAULT ''::text NOT NULL,
    left_at bigint DEFAULT 0 NOT NULL,
    left_how text DEFAULT ''::text NOT NULL,
    CONSTRAINT bootstrap_tokens_nonce_key UNIQUE (nonce),
    CONSTRAINT bootstrap_tokens_pkey PRIMARY KEY (id),
    CONSTRAINT bootstrap_tokens_state_check CHECK ((state = ANY (ARRAY['issued'::text, 'consumed'::text, 'expired'::text, 'revoked'::text])))
);

CREATE INDEX bootstrap_tokens_project_idx ON public.bootstrap_tokens USING btree (project, created_at, id);

CREATE INDEX bootstrap_tokens_resource_idx ON public.bootstrap_tokens USING btree (resource) WHERE (resource <> ''::text);

COMMENT ON TABLE bootstrap_tokens IS 'A token admits one node to one project, once. Ended tokens are deleted when a later one is made in their project, and with their namespace.';

COMMENT ON COLUMN bootstrap_tokens.id IS 'public; part of the token''s text';

COMMENT ON COLUMN bootstrap_tokens.project IS 'a namespace';

COMMENT ON COLUMN bootstrap_tokens.resource IS 'the provisioned resource it was made for; empty: made for a person';

COMMENT ON COLUMN bootstrap_tokens.hash IS 'SHA-256 of the secret part';

COMMENT ON COLUMN bootstrap_tokens.created_at IS 'Unix milliseconds, as all times here';

COMMENT ON COLUMN bootstrap_tokens.ended_at IS 'when its state stopped being issued; 0: it is issued';

COMMENT ON COLUMN bootstrap_tokens.nonce IS 'of the enrolment that consumed it';

COMMENT ON COLUMN bootstrap_tokens.node IS 'name of the node that it admitted';

COMMENT ON COLUMN bootstrap_tokens.left_at IS 'when that node left; 0: it has not';

COMMENT ON COLUMN bootstrap_tokens.left_how IS 'how it left, for people';

CREATE TABLE changes (
    revision bigint NOT NULL,
    object bigint NOT NULL,
    uid text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    type integer NOT NULL,
    previous bigint,
    body bytea,
    at bigint,
    author text COLLATE "C",
    CONSTRAINT changes_pkey PRIMARY KEY (revision),
    CONSTRAINT changes_type_check CHECK ((type = ANY (ARRAY[1, 2, 3])))
);

CREATE INDEX changes_kind_revision_idx ON public.changes USING btree (kind, revision);

CREATE INDEX changes_removed_idx ON public.changes USING btree (kind, namespace, name, revision) WHERE (type = 3);

CREATE TRIGGER repositories_follow_created_trigger AFTER INSERT ON public.changes FOR EACH ROW WHEN (((new.kind = 'repositories.registry.exeunt.dev'::text) AND (new.type = 1))) EXECUTE FUNCTION repositories_follow_created();

CREATE TRIGGER repositories_follow_updated_trigger AFTER INSERT ON public.changes FOR EACH ROW WHEN (((new.kind = 'repositories.registry.exeunt.dev'::text) AND (new.type = 2))) EXECUTE FUNCTION repositories_follow_updated();

CREATE TRIGGER repositories_quota_trigger AFTER INSERT ON public.changes FOR EACH ROW WHEN (((new.kind = ANY (ARRAY['resourcequotas'::text, 'repositories.registry.exeunt.dev'::text])) AND (new.type = ANY (ARRAY[1, 2])))) EXECUTE FUNCTION repositories_quota();

COMMENT ON TABLE changes IS 'The log: every change to every object, until compaction.';

COMMENT ON COLUMN changes.object IS 'objects.id, also after the object is gone';

COMMENT ON COLUMN changes.type IS '1 created, 2 updated, 3 removed';

COMMENT ON COLUMN changes.previous IS 'revision of the state before; null: created';

COMMENT ON COLUMN changes.body IS 'null: removed; the last body is at previous';

COMMENT ON COLUMN changes.at IS 'when the change was made, never before an earlier one; Unix milliseconds; null: by a version that did not record it';

COMMENT ON COLUMN changes.author IS 'user, client, verb and request id, a line each; null: the server itself, or not recorded';

CREATE TABLE console_sessions (
    id text NOT NULL,
    link boolean NOT NULL,
    user_name text NOT NULL,
    client text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    CONSTRAINT console_sessions_pkey PRIMARY KEY (id)
);

CREATE INDEX console_sessions_expires_at_idx ON public.console_sessions USING btree (expires_at);

CREATE INDEX console_sessions_user_name_idx ON public.console_sessions USING btree (user_name, created_at);

CREATE TABLE data_id (
    one integer NOT NULL,
    id text NOT NULL,
    stored boolean DEFAULT false NOT NULL,
    CONSTRAINT data_id_one_check CHECK ((one = 1)),
    CONSTRAINT data_id_pkey PRIMARY KEY (one)
);

COMMENT ON TABLE data_id IS 'The id that the database shares with its blob store, so that a server refuses the blob store of another database. One row, made at the first start with a registry.';

COMMENT ON COLUMN data_id.stored IS 'the blob store has the id; before that it may have none yet';

CREATE TABLE deleted_manifests (
    repository_id bigint NOT NULL,
    digest text COLLATE "C" NOT NULL,
    media_type_id bigint NOT NULL,
    payload bytea NOT NULL,
    deleted_at bigint NOT NULL,
    CONSTRAINT deleted_manifests_media_type_id_fkey FOREIGN KEY (media_type_id) REFERENCES media_types(id),
    CONSTRAINT deleted_manifests_pkey PRIMARY KEY (repository_id, digest),
    CONSTRAINT deleted_manifests_repository_id_fkey FOREIGN KEY (repository_id) REFERENCES repositories(id) ON DELETE CASCADE
);

CREATE INDEX deleted_manifests_deleted_at_idx ON public.deleted_manifests USING btree (deleted_at);

COMMENT ON TABLE deleted_manifests IS 'Manifests that were deleted by their digest. Until the reviews of their blobs are due, undelete can push them again from here. Deleted by age.';

COMMENT ON COLUMN deleted_manifests.deleted_at IS 'Unix milliseconds';

CREATE TABLE deleted_tags (
    repository_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    event text COLLATE "C" NOT NULL,
    deleted_at bigint NOT NULL,
    CONSTRAINT deleted_tags_pkey PRIMARY KEY (repository_id, name, deleted_at, digest),
    CONSTRAINT deleted_tags_repository_id_fkey FOREIGN KEY (repository_id) REFERENCES repositories(id) ON DELETE CASCADE
);

CREATE INDEX deleted_tags_deleted_at_idx ON public.deleted_tags USING btree (deleted_at);

CREATE INDEX deleted_tags_repository_id_digest_idx ON public.deleted_tags USING btree (repository_id, digest);

COMMENT ON TABLE deleted_tags IS 'Tags that were deleted, or point at another manifest now. The manifest may be gone; then they cannot be restored. Deleted by age.';

COMMENT ON COLUMN deleted_tags.digest IS 'of the manifest';

COMMENT ON COLUMN deleted_tags.event IS 'tag_delete, tag_switch or manifest_delete';

COMMENT ON COLUMN deleted_tags.deleted_at IS 'Unix milliseconds';

CREATE TABLE dropped_references (
    owner_uid text COLLATE "C" NOT NULL,
    dependent_uid text COLLATE "C" NOT NULL,
    reference text COLLATE "C" NOT NULL,
    known text COLLATE "C" NOT NULL,
    CONSTRAINT dropped_references_pkey PRIMARY KEY (owner_uid, dependent_uid)
);

CREATE INDEX dropped_references_dependent_uid_idx ON public.dropped_references USING btree (dependent_uid);

COMMENT ON TABLE dropped_references IS 'Owner references that restored objects came back without, because the owner was gone. A restore of the owner gives them back.';

COMMENT ON COLUMN dropped_references.owner_uid IS 'a restore of the object that had this uid brings the owner back';

COMMENT ON COLUMN dropped_references.dependent_uid IS 'the restored object';

COMMENT ON COLUMN dropped_references.reference IS 'the OwnerReference as it was archived, JSON';

COMMENT ON COLUMN dropped_references.known IS 'uids of the owners that restores gave the dependent, JSON; any other was added by a client';

CREATE TABLE expiry_groups (
    policy text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    object bigint NOT NULL,
    CONSTRAINT expiry_groups_pkey PRIMARY KEY (policy, name, object)
);

COMMENT ON TABLE expiry_groups IS 'The objects of which a policy of expiry keeps the newest. The writer keeps the rows, and the policy''s walk writes those of the objects that were there before. Objects that are being deleted are not in them.';

COMMENT ON COLUMN expiry_groups.policy IS 'uid and generation';

COMMENT ON COLUMN expiry_groups.name IS 'kind, namespace and values of labels';

COMMENT ON COLUMN expiry_groups.object IS 'objects.id: the one that was created last is the newest';

CREATE TABLE expiry_policies (
    uid text COLLATE "C" NOT NULL,
    state text NOT NULL,
    place text DEFAULT ''::text NOT NULL,
    walked_at bigint,
    scope bigint DEFAULT 0 NOT NULL,
    selected bigint DEFAULT 0 NOT NULL,
    due bigint DEFAULT 0 NOT NULL,
    day bigint DEFAULT 0 NOT NULL,
    today bigint DEFAULT 0 NOT NULL,
    taken bigint DEFAULT 0 NOT NULL,
    taken_at bigint,
    waits bigint DEFAULT 0 NOT NULL,
    slot bigint DEFAULT 0 NOT NULL,
    in_slot bigint DEFAULT 0 NOT NULL,
    CONSTRAINT expiry_policies_pkey PRIMARY KEY (uid)
) WITH (fillfactor=50);

COMMENT ON TABLE expiry_policies IS 'What the server knows about each ExpiryPolicy and ClusterExpiryPolicy besides the object.';

COMMENT ON COLUMN expiry_policies.state IS 'the generation and the annotation that the row is about';

COMMENT ON COLUMN expiry_policies.place IS 'the last object that was enqueued: resource, namespace and name, with spaces between';

COMMENT ON COLUMN expiry_policies.walked_at IS 'when the last object was; null: not yet. Before, the policy takes nothing';

COMMENT ON COLUMN expiry_policies.scope IS 'how many objects of its resources there were';

COMMENT ON COLUMN expiry_policies.selected IS 'of them selected';

COMMENT ON COLUMN expiry_policies.due IS 'of them due';

COMMENT ON COLUMN expiry_policies.day IS 'the last day on which it took an object, in days since 1970';

COMMENT ON COLUMN expiry_policies.today IS 'how many it took on that day';

COMMENT ON COLUMN expiry_policies.taken IS 'how many it took';

COMMENT ON COLUMN expiry_policies.waits IS '1: it has reached what it may take without a confirmation';

COMMENT ON COLUMN expiry_policies.slot IS 'the last slot of the policy''s rate in which it took an object, in slots since 1970';

COMMENT ON COLUMN expiry_policies.in_slot IS 'how many it took in that slot';

CREATE TABLE expiry_policy_reviews (
    uid text COLLATE "C" NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    CONSTRAINT expiry_policy_reviews_pkey PRIMARY KEY (uid)
) WITH (fillfactor=50);

CREATE INDEX expiry_policy_reviews_review_after_idx ON public.expiry_policy_reviews USING btree (review_after);

COMMENT ON TABLE expiry_policy_reviews IS 'ExpiryPolicies and ClusterExpiryPolicies that were written, by uid: see package review for the columns. The review of a new state of a policy enqueues the objects that it selects, and writes its status.';

CREATE TABLE expiry_reviews (
    uid text COLLATE "C" NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    announced bigint,
    CONSTRAINT expiry_reviews_pkey PRIMARY KEY (uid)
) WITH (fillfactor=50);

CREATE INDEX expiry_reviews_review_after_idx ON public.expiry_reviews USING btree (review_after);

COMMENT ON TABLE expiry_reviews IS 'Objects that expire, by uid, each due at the time at which it expires: see package review for the columns. A row may outlive its object: then its review deletes it.';

COMMENT ON COLUMN expiry_reviews.announced IS 'the time at which an Event said that the object expires, in Unix milliseconds';

CREATE TABLE gc_admission_reviews (
    uid text COLLATE "C" NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    CONSTRAINT gc_admission_reviews_pkey PRIMARY KEY (uid)
);

CREATE INDEX gc_admission_reviews_review_after_idx ON public.gc_admission_reviews USING btree (review_after);

CREATE TRIGGER gc_admission_reviews_trace BEFORE INSERT OR UPDATE OF event ON public.gc_admission_reviews FOR EACH ROW WHEN ((COALESCE(current_setting('exeunt.traces'::text, true), ''::text) <> ''::text)) EXECUTE FUNCTION gc_trace('uid');

COMMENT ON TABLE gc_admission_reviews IS 'Objects that the collector would delete, and whose delete a webhook or a policy may judge. The event is the uid of the owner or namespace that causes it.';

COMMENT ON COLUMN gc_admission_reviews.traceparent IS 'the trace that enqueued the row; null: none';

CREATE TABLE gc_blob_review_queue (
    digest text COLLATE "C" NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    CONSTRAINT gc_blob_review_queue_pkey PRIMARY KEY (digest)
) WITH (fillfactor=50);

CREATE INDEX gc_blob_review_queue_review_after_idx ON public.gc_blob_review_queue USING btree (review_after);

CREATE TRIGGER gc_blob_review_queue_trace BEFORE INSERT OR UPDATE OF event ON public.gc_blob_review_queue FOR EACH ROW WHEN ((COALESCE(current_setting('exeunt.traces'::text, true), ''::text) <> ''::text)) EXECUTE FUNCTION gc_trace('digest');

COMMENT ON TABLE gc_blob_review_queue IS 'Blobs that may be unused: every unused blob is here. See package review for the columns.';

COMMENT ON COLUMN gc_blob_review_queue.traceparent IS 'the trace that enqueued the row; null: none';

CREATE TABLE gc_blobs_configurations (
    blob_id bigint NOT NULL,
    manifest_id bigint NOT NULL,
    top_level_namespace_id bigint NOT NULL,
    repository_id bigint NOT NULL,
    CONSTRAINT gc_blobs_configurations_blob_id_fkey FOREIGN KEY (blob_id) REFERENCES blobs(id) ON DELETE RESTRICT,
    CONSTRAINT gc_blobs_configurations_pkey PRIMARY KEY (blob_id, manifest_id)
);

COMMENT ON TABLE gc_blobs_configurations IS 'Which manifests, of any repository, use a blob as their configuration. Written by triggers. Its foreign key keeps a blob that is in use.';

COMMENT ON COLUMN gc_blobs_configurations.blob_id IS 'RESTRICT: NO ACTION would first look for another blob with this id';

CREATE TABLE gc_blobs_layers (
    blob_id bigint NOT NULL,
    layer_id bigint NOT NULL,
    top_level_namespace_id bigint NOT NULL,
    repository_id bigint NOT NULL,
    CONSTRAINT gc_blobs_layers_blob_id_fkey FOREIGN KEY (blob_id) REFERENCES blobs(id) ON DELETE RESTRICT,
    CONSTRAINT gc_blobs_layers_pkey PRIMARY KEY (blob_id, layer_id)
);

COMMENT ON TABLE gc_blobs_layers IS 'Which layers, of any repository, are a blob. Written by triggers. Its foreign key keeps a blob that is in use.';

COMMENT ON COLUMN gc_blobs_layers.blob_id IS 'RESTRICT: NO ACTION would first look for another blob with this id';

CREATE TABLE gc_given_back (
    day bigint NOT NULL,
    bytes bigint NOT NULL,
    CONSTRAINT gc_given_back_pkey PRIMARY KEY (day)
);

COMMENT ON TABLE gc_given_back IS 'How many bytes of the blob store the unlinkers removed on each day.';

COMMENT ON COLUMN gc_given_back.day IS 'Days since 1970, UTC.';

CREATE TABLE gc_manifest_review_queue (
    manifest text COLLATE "C" NOT NULL,
    top_level_namespace_id bigint DEFAULT 0 NOT NULL,
    repository_id bigint DEFAULT 0 NOT NULL,
    manifest_id bigint DEFAULT 0 NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    CONSTRAINT gc_manifest_review_queue_pkey PRIMARY KEY (manifest)
) WITH (fillfactor=50);

CREATE INDEX gc_manifest_review_queue_review_after_idx ON public.gc_manifest_review_queue USING btree (review_after);

CREATE TRIGGER gc_manifest_review_queue_trace BEFORE INSERT OR UPDATE OF event ON public.gc_manifest_review_queue FOR EACH ROW WHEN ((COALESCE(current_setting('exeunt.traces'::text, true), ''::text) <> ''::text)) EXECUTE FUNCTION gc_trace('manifest');

COMMENT ON TABLE gc_manifest_review_queue IS 'Manifests that may be unused: every manifest without tag, list and subject is here. See package review for the columns.';

COMMENT ON COLUMN gc_manifest_review_queue.manifest IS 'repository id, @, digest; the ids beside it are for people';

COMMENT ON COLUMN gc_manifest_review_queue.traceparent IS 'the trace that enqueued the row; null: none';

CREATE TABLE gc_object_reviews (
    uid text COLLATE "C" NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    CONSTRAINT gc_object_reviews_pkey PRIMARY KEY (uid)
);

CREATE INDEX gc_object_reviews_review_after_idx ON public.gc_object_reviews USING btree (review_after);

CREATE TRIGGER gc_object_reviews_trace BEFORE INSERT OR UPDATE OF event ON public.gc_object_reviews FOR EACH ROW WHEN ((COALESCE(current_setting('exeunt.traces'::text, true), ''::text) <> ''::text)) EXECUTE FUNCTION gc_trace('uid');

COMMENT ON TABLE gc_object_reviews IS 'Objects, and uids of objects that are gone, that the collector must review: see package review for the columns, package gc for the events.';

COMMENT ON COLUMN gc_object_reviews.traceparent IS 'the trace that enqueued the row; null: none';

CREATE TABLE gc_repository_review_queue (
    uid text COLLATE "C" NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    CONSTRAINT gc_repository_review_queue_pkey PRIMARY KEY (uid)
) WITH (fillfactor=50);

CREATE INDEX gc_repository_review_queue_review_after_idx ON public.gc_repository_review_queue USING btree (review_after);

CREATE TRIGGER gc_repository_review_queue_trace BEFORE INSERT OR UPDATE OF event ON public.gc_repository_review_queue FOR EACH ROW WHEN ((COALESCE(current_setting('exeunt.traces'::text, true), ''::text) <> ''::text)) EXECUTE FUNCTION gc_trace('uid');

COMMENT ON TABLE gc_repository_review_queue IS 'Repositories that were removed: their content is deleted when they can no longer be restored. See package review for the columns.';

COMMENT ON COLUMN gc_repository_review_queue.uid IS 'of the Repository';

COMMENT ON COLUMN gc_repository_review_queue.traceparent IS 'the trace that enqueued the row; null: none';

CREATE TABLE gc_review_after_defaults (
    event text COLLATE "C" NOT NULL,
    value bigint NOT NULL,
    CONSTRAINT gc_review_after_defaults_pkey PRIMARY KEY (event),
    CONSTRAINT gc_review_after_defaults_value_check CHECK ((value >= 0))
);

COMMENT ON TABLE gc_review_after_defaults IS 'The delay from an event to the review of its subject. existence_check is the minimum for blobs and manifests: what a client was told exists stays for that long.';

COMMENT ON COLUMN gc_review_after_defaults.value IS 'milliseconds; a random part is added: up to a tenth, at most a minute';

CREATE TABLE gc_settings (
    name text COLLATE "C" NOT NULL,
    value boolean NOT NULL,
    CONSTRAINT gc_settings_pkey PRIMARY KEY (name)
);

COMMENT ON TABLE gc_settings IS 'Switches that the triggers read. signatures: the tags of cosign are deleted with their image.';

CREATE TABLE gc_state (
    one integer NOT NULL,
    paused boolean NOT NULL,
    reason text NOT NULL,
    CONSTRAINT gc_state_one_check CHECK ((one = 1)),
    CONSTRAINT gc_state_pkey PRIMARY KEY (one)
);

COMMENT ON TABLE gc_state IS 'The collector''s persisted switch: one row.';

CREATE TABLE gc_unlink_queue (
    path text COLLATE "C" NOT NULL,
    size bigint DEFAULT 0 NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    CONSTRAINT gc_unlink_queue_pkey PRIMARY KEY (path)
) WITH (fillfactor=50);

CREATE INDEX gc_unlink_queue_review_after_idx ON public.gc_unlink_queue USING btree (review_after);

CREATE TRIGGER gc_unlink_queue_trace BEFORE INSERT OR UPDATE OF event ON public.gc_unlink_queue FOR EACH ROW WHEN ((COALESCE(current_setting('exeunt.traces'::text, true), ''::text) <> ''::text)) EXECUTE FUNCTION gc_trace('path');

COMMENT ON TABLE gc_unlink_queue IS 'Paths of the blob store that no row names any more: the unlinker removes their bytes. See package review for the columns.';

COMMENT ON COLUMN gc_unlink_queue.size IS 'bytes, as far as known';

COMMENT ON COLUMN gc_unlink_queue.traceparent IS 'the trace that enqueued the row; null: none';

CREATE TABLE history (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    object bigint NOT NULL,
    uid text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    first bigint NOT NULL,
    until bigint NOT NULL,
    ended_at bigint NOT NULL,
    open integer NOT NULL,
    versions bigint NOT NULL,
    size bigint NOT NULL,
    body bytea STORAGE EXTERNAL NOT NULL,
    CONSTRAINT history_pkey PRIMARY KEY (id)
);

CREATE UNIQUE INDEX history_key_idx ON public.history USING btree (kind, namespace, name, first, until);

CREATE INDEX history_namespace_idx ON public.history USING btree (namespace, ended_at, id);

COMMENT ON INDEX history_namespace_idx IS 'What leaves first.';

CREATE UNIQUE INDEX history_open_idx ON public.history USING btree (object) WHERE (open = 1);

CREATE INDEX history_uid_idx ON public.history USING btree (uid);

COMMENT ON TABLE history IS 'Earlier versions of objects, which compaction moves here from changes. A row has several versions of one object, one after the other.';

COMMENT ON COLUMN history.object IS 'objects.id';

COMMENT ON COLUMN history.first IS 'revision of the oldest version';

COMMENT ON COLUMN history.until IS 'the revision that replaced or removed the newest version';

COMMENT ON COLUMN history.ended_at IS 'when that was; Unix milliseconds';

COMMENT ON COLUMN history.open IS 'boolean: the next version of the object is added to this row';

COMMENT ON COLUMN history.size IS 'bytes of body';

COMMENT ON COLUMN history.body IS 'the versions, compressed together: store/history. Of a sealed kind: sealed';

CREATE TABLE history_bounds (
    kind text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    bytes bigint DEFAULT 0 NOT NULL,
    CONSTRAINT history_bounds_pkey PRIMARY KEY (kind, namespace)
);

COMMENT ON TABLE history_bounds IS 'What the history does not have any more, and how much it has.';

COMMENT ON COLUMN history_bounds.kind IS 'empty: all';

COMMENT ON COLUMN history_bounds.namespace IS '''*'': all';

COMMENT ON COLUMN history_bounds.revision IS 'states of these objects before this revision may be incomplete';

COMMENT ON COLUMN history_bounds.bytes IS 'of the rows of history, for all kinds of one namespace';

CREATE TABLE history_times (
    at bigint NOT NULL,
    revision bigint NOT NULL,
    CONSTRAINT history_times_pkey PRIMARY KEY (at)
);

COMMENT ON TABLE history_times IS 'The last revision of each second in which something changed, up to revision.moved.';

CREATE TABLE image_uses (
    path text COLLATE "C" NOT NULL,
    reference text COLLATE "C" NOT NULL,
    uid text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    left_at bigint,
    CONSTRAINT image_uses_pkey PRIMARY KEY (path, reference, uid)
);

CREATE INDEX image_uses_left_at_idx ON public.image_uses USING btree (left_at) WHERE (left_at IS NOT NULL);

CREATE INDEX image_uses_uid_idx ON public.image_uses USING btree (uid);

COMMENT ON TABLE image_uses IS 'The images that workloads name. A row is written with the object, and stays while the archive or the history has a version that names the image.';

COMMENT ON COLUMN image_uses.path IS 'without the host of the registry';

COMMENT ON COLUMN image_uses.reference IS 'a tag or a digest';

COMMENT ON COLUMN image_uses.uid IS 'of the object';

COMMENT ON COLUMN image_uses.left_at IS 'when it ended to name the image; Unix milliseconds; null: it names it';

CREATE TABLE layers (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    top_level_namespace_id bigint NOT NULL,
    repository_id bigint NOT NULL,
    manifest_id bigint NOT NULL,
    blob_id bigint NOT NULL,
    media_type_id bigint NOT NULL,
    size bigint NOT NULL,
    CONSTRAINT layers_manifest_id_blob_id_key UNIQUE (manifest_id, blob_id),
    CONSTRAINT layers_manifest_id_fkey FOREIGN KEY (manifest_id) REFERENCES manifests(id) ON DELETE CASCADE,
    CONSTRAINT layers_media_type_id_fkey FOREIGN KEY (media_type_id) REFERENCES media_types(id),
    CONSTRAINT layers_pkey PRIMARY KEY (id)
);

CREATE TRIGGER gc_track_deleted_layers_trigger AFTER DELETE ON public.layers REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_layers();

CREATE TRIGGER gc_track_layer_blobs_trigger AFTER INSERT ON public.layers REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION gc_track_layer_blobs();

COMMENT ON TABLE layers IS 'Which blobs a manifest holds, except its configuration. A layer that must not be distributed is here only if its blob is.';

COMMENT ON COLUMN layers.repository_id IS 'deleted with its manifest';

COMMENT ON COLUMN layers.blob_id IS 'refers to blobs by gc_blobs_layers';

CREATE TABLE manifest_references (
    top_level_namespace_id bigint NOT NULL,
    repository_id bigint NOT NULL,
    parent_id bigint NOT NULL,
    child_id bigint NOT NULL,
    CONSTRAINT manifest_references_child_id_fkey FOREIGN KEY (child_id) REFERENCES manifests(id) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT manifest_references_parent_id_fkey FOREIGN KEY (parent_id) REFERENCES manifests(id) ON DELETE CASCADE,
    CONSTRAINT manifest_references_pkey PRIMARY KEY (parent_id, child_id),
    CONSTRAINT manifest_references_repository_id_fkey FOREIGN KEY (repository_id) REFERENCES repositories(id) ON DELETE CASCADE
);

CREATE INDEX manifest_references_child_id_idx ON public.manifest_references USING btree (child_id);

CREATE INDEX manifest_references_repository_id_idx ON public.manifest_references USING btree (repository_id);

CREATE TRIGGER gc_track_deleted_manifest_lists_trigger AFTER DELETE ON public.manifest_references REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_manifest_lists();

COMMENT ON TABLE manifest_references IS 'Which manifests a list holds.';

COMMENT ON COLUMN manifest_references.child_id IS 'deferred: a repository is deleted with all its manifests, in any order';

CREATE TABLE manifests (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    top_level_namespace_id bigint NOT NULL,
    repository_id bigint NOT NULL,
    digest text COLLATE "C" NOT NULL,
    media_type_id bigint NOT NULL,
    artifact_type text COLLATE "C",
    subject_digest text COLLATE "C",
    configuration_media_type_id bigint,
    configuration_blob_id bigint,
    total_size bigint NOT NULL,
    payload bytea NOT NULL,
    created_at bigint NOT NULL,
    CONSTRAINT manifests_configuration_media_type_id_fkey FOREIGN KEY (configuration_media_type_id) REFERENCES media_types(id),
    CONSTRAINT manifests_media_type_id_fkey FOREIGN KEY (media_type_id) REFERENCES media_types(id),
    CONSTRAINT manifests_pkey PRIMARY KEY (id),
    CONSTRAINT manifests_repository_id_digest_key UNIQUE (repository_id, digest),
    CONSTRAINT manifests_repository_id_fkey FOREIGN KEY (repository_id) REFERENCES repositories(id) ON DELETE CASCADE
);

CREATE INDEX manifests_repository_id_subject_digest_idx ON public.manifests USING btree (repository_id, subject_digest, digest) WHERE (subject_digest IS NOT NULL);

CREATE TRIGGER gc_track_configuration_blobs_trigger AFTER INSERT ON public.manifests FOR EACH ROW WHEN ((new.configuration_blob_id IS NOT NULL)) EXECUTE FUNCTION gc_track_configuration_blobs();

CREATE TRIGGER gc_track_deleted_manifests_trigger AFTER DELETE ON public.manifests REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_manifests();

CREATE TRIGGER gc_track_deleted_subjects_trigger AFTER DELETE ON public.manifests REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_subjects();

CREATE TRIGGER gc_track_manifest_uploads_trigger AFTER INSERT OR UPDATE ON public.manifests FOR EACH ROW EXECUTE FUNCTION gc_track_manifest_uploads();

COMMENT ON TABLE manifests IS 'Manifests and manifest lists, each in its repository.';

COMMENT ON COLUMN manifests.artifact_type IS 'what referrers are filtered by; null: none';

COMMENT ON COLUMN manifests.subject_digest IS 'need not exist; null: none';

COMMENT ON COLUMN manifests.configuration_blob_id IS 'null: none; refers to blobs by gc_blobs_configurations';

COMMENT ON COLUMN manifests.total_size IS 'of configuration and layers';

COMMENT ON COLUMN manifests.payload IS 'byte for byte as the client sent it';

COMMENT ON COLUMN manifests.created_at IS 'Unix milliseconds';

CREATE TABLE media_types (
    id bigint GENERATED BY DEFAULT AS IDENTITY NOT NULL,
    media_type text COLLATE "C" NOT NULL,
    CONSTRAINT media_types_media_type_key UNIQUE (media_type),
    CONSTRAINT media_types_pkey PRIMARY KEY (id)
);

COMMENT ON TABLE media_types IS 'Written once each and never removed: there are few.';

CREATE TABLE mesh_node_reviews (
    uid text COLLATE "C" NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    CONSTRAINT mesh_node_reviews_pkey PRIMARY KEY (uid)
) WITH (fillfactor=50);

CREATE INDEX mesh_node_reviews_review_after_idx ON public.mesh_node_reviews USING btree (review_after);

CREATE TRIGGER mesh_node_reviews_trace BEFORE INSERT OR UPDATE OF event ON public.mesh_node_reviews FOR EACH ROW WHEN ((COALESCE(current_setting('exeunt.traces'::text, true), ''::text) <> ''::text)) EXECUTE FUNCTION gc_trace('uid');

COMMENT ON TABLE mesh_node_reviews IS 'Nodes that are to be reviewed: see package review for the columns, package mesh for the events.';

COMMENT ON COLUMN mesh_node_reviews.traceparent IS 'the trace that enqueued the row; null: none';

CREATE TABLE mesh_nodes (
    uid text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL,
    credential bytea NOT NULL,
    enrolled_at bigint NOT NULL,
    last_seen bigint NOT NULL,
    ready boolean NOT NULL,
    CONSTRAINT mesh_nodes_pkey PRIMARY KEY (uid),
    CONSTRAINT mesh_nodes_token_key UNIQUE (token)
) WITH (fillfactor=50);

COMMENT ON TABLE mesh_nodes IS 'The nodes of the mesh. A node is registered while it has a row.';

COMMENT ON COLUMN mesh_nodes.uid IS 'of its object';

COMMENT ON COLUMN mesh_nodes.token IS 'bootstrap_tokens.id; unique: a token admits one node';

COMMENT ON COLUMN mesh_nodes.credential IS 'SHA-256 of its secret';

COMMENT ON COLUMN mesh_nodes.ready IS 'as in its object''s status';

CREATE TABLE migrations (
    number integer NOT NULL,
    name text NOT NULL,
    CONSTRAINT migrations_pkey PRIMARY KEY (number)
);

CREATE TABLE missing_content (
    repository_id bigint NOT NULL,
    digest text COLLATE "C" NOT NULL,
    manifest_id bigint NOT NULL,
    media_type_id bigint NOT NULL,
    size bigint NOT NULL,
    CONSTRAINT missing_content_manifest_id_fkey FOREIGN KEY (manifest_id) REFERENCES manifests(id) ON DELETE CASCADE,
    CONSTRAINT missing_content_pkey PRIMARY KEY (repository_id, digest, manifest_id)
);

CREATE INDEX missing_content_manifest_id_idx ON public.missing_content USING btree (manifest_id);

COMMENT ON TABLE missing_content IS 'What manifests of cached repositories refer to and their repositories do not have yet. A pull brings it, and the transaction that stores it deletes the row.';

COMMENT ON COLUMN missing_content.repository_id IS 'deleted with its manifest';

COMMENT ON COLUMN missing_content.media_type_id IS 'of a layer; 0: it is a manifest';

COMMENT ON COLUMN missing_content.size IS 'as the manifest says';

CREATE TABLE object_expiries (
    object bigint NOT NULL,
    expires_at bigint NOT NULL,
    CONSTRAINT object_expiries_pkey PRIMARY KEY (object)
);

CREATE INDEX object_expiries_expires_at_idx ON public.object_expiries USING btree (expires_at);

COMMENT ON TABLE object_expiries IS 'When objects are removed without a request. A row may outlive its object: then it is deleted when it is due.';

COMMENT ON COLUMN object_expiries.object IS 'objects.id';

COMMENT ON COLUMN object_expiries.expires_at IS 'Unix milliseconds';

CREATE TABLE objects (
    id bigint NOT NULL,
    uid text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    deletion_time bigint,
    grace_seconds bigint,
    finalizing integer DEFAULT 0 NOT NULL,
    deletion_actor text COLLATE "C",
    deletion_cascade text COLLATE "C",
    deletion_requester text COLLATE "C",
    deletion_request_id text COLLATE "C",
    own_cascade text COLLATE "C",
    asked_body bigint,
    asked_at bigint,
    deletion_confirmer text COLLATE "C",
    CONSTRAINT objects_kind_namespace_name_key UNIQUE (kind, namespace, name),
    CONSTRAINT objects_pkey PRIMARY KEY (id),
    CONSTRAINT objects_uid_key UNIQUE (uid)
);

CREATE INDEX objects_cascade_idx ON public.objects USING btree (COALESCE(deletion_cascade, uid)) WHERE (deletion_time IS NOT NULL);

CREATE INDEX objects_finalizing_idx ON public.objects USING btree (uid) WHERE ((deletion_time IS NOT NULL) AND (finalizing <> 0));

COMMENT ON INDEX objects_finalizing_idx IS 'The objects that wait for the collector, for its scan: few rows.';

CREATE TRIGGER image_uses_removed_trigger AFTER DELETE ON public.objects FOR EACH ROW WHEN ((old.kind = ANY (ARRAY['controllerrevisions.apps'::text, 'cronjobs.batch'::text, 'daemonsets.apps'::text, 'deployments.apps'::text, 'jobs.batch'::text, 'pods'::text, 'podtemplates'::text, 'replicasets.apps'::text, 'replicationcontrollers'::text, 'statefulsets.apps'::text]))) EXECUTE FUNCTION image_uses_removed();

CREATE TRIGGER objects_declaration_removed_track AFTER DELETE ON public.objects FOR EACH ROW WHEN ((old.kind = 'provisionedresources.provisioning.exeunt.dev'::text)) EXECUTE FUNCTION broker_track_declaration();

CREATE TRIGGER objects_declared_track AFTER INSERT ON public.objects FOR EACH ROW WHEN ((new.kind = 'provisionedresources.provisioning.exeunt.dev'::text)) EXECUTE FUNCTION broker_track_declaration();

CREATE TRIGGER objects_deleting_track AFTER UPDATE OF deletion_time ON public.objects FOR EACH ROW WHEN ((new.deletion_time IS NOT NULL)) EXECUTE FUNCTION gc_track_object_deleting();

CREATE TRIGGER objects_mesh_deleting_track AFTER UPDATE OF deletion_time ON public.objects FOR EACH ROW WHEN (((new.kind = 'meshnodes.mesh.exeunt.dev'::text) AND (new.deletion_time IS NOT NULL))) EXECUTE FUNCTION mesh_track_object_deleting();

CREATE TRIGGER objects_mesh_removed_track AFTER DELETE ON public.objects FOR EACH ROW WHEN ((old.kind = 'meshnodes.mesh.exeunt.dev'::text)) EXECUTE FUNCTION mesh_track_object_removed();

CREATE TRIGGER objects_project_removed_track AFTER DELETE ON public.objects FOR EACH ROW WHEN ((old.kind = 'namespaces'::text)) EXECUTE FUNCTION mesh_track_project_removed();

CREATE TRIGGER objects_removed_track AFTER DELETE ON public.objects REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION gc_track_objects_removed();

CREATE TRIGGER objects_undeclared_track AFTER UPDATE OF deletion_time ON public.objects FOR EACH ROW WHEN (((new.kind = 'provisionedresources.provisioning.exeunt.dev'::text) AND (old.deletion_time IS NULL) AND (new.deletion_time IS NOT NULL))) EXECUTE FUNCTION broker_track_declaration();

CREATE TRIGGER registry_quotas_removed_trigger AFTER DELETE ON public.objects FOR EACH ROW WHEN ((old.kind = ANY (ARRAY['resourcequotas'::text, 'repositories.registry.exeunt.dev'::text]))) EXECUTE FUNCTION registry_quotas_removed();

CREATE TRIGGER repositories_follow_deleting_trigger AFTER UPDATE OF deletion_time ON public.objects FOR EACH ROW WHEN (((new.kind = 'repositories.registry.exeunt.dev'::text) AND (new.deletion_time IS NOT NULL) AND (old.deletion_time IS NULL))) EXECUTE FUNCTION repositories_follow_deleting();

CREATE TRIGGER repositories_follow_removed_trigger AFTER DELETE ON public.objects FOR EACH ROW WHEN ((old.kind = 'repositories.registry.exeunt.dev'::text)) EXECUTE FUNCTION repositories_follow_removed();

CREATE TRIGGER top_level_namespaces_follow_created_trigger AFTER INSERT ON public.objects FOR EACH ROW WHEN ((new.kind = 'namespaces'::text)) EXECUTE FUNCTION top_level_namespaces_follow();

CREATE TRIGGER top_level_namespaces_follow_deleting_trigger AFTER UPDATE OF deletion_time ON public.objects FOR EACH ROW WHEN (((new.kind = 'namespaces'::text) AND (new.deletion_time IS NOT NULL) AND (old.deletion_time IS NULL))) EXECUTE FUNCTION top_level_namespaces_follow();

COMMENT ON TABLE objects IS 'The objects that exist: a narrow head each. The body is in changes, at the head''s revision.';

COMMENT ON COLUMN objects.id IS 'the revision of its creation';

COMMENT ON COLUMN objects.kind IS 'storage name: deployments.apps';

COMMENT ON COLUMN objects.namespace IS 'empty: cluster-scoped';

COMMENT ON COLUMN objects.deletion_time IS 'Unix seconds; null: not being deleted';

COMMENT ON COLUMN objects.finalizing IS 'the collector''s tasks that a DELETING object waits for: 1 orphan its dependents, 2 delete them first, 4 empty the namespace';

COMMENT ON COLUMN objects.deletion_actor IS 'who asked for the deletion of a DELETING object';

COMMENT ON COLUMN objects.deletion_cascade IS 'the cascade that a DELETING object is part of; null: its own, named by its uid';

COMMENT ON COLUMN objects.deletion_requester IS 'the client whose delete began that cascade; null: the actor itself';

COMMENT ON COLUMN objects.deletion_request_id IS 'the Audit-Id of that delete; null: it was not a request';

COMMENT ON COLUMN objects.own_cascade IS 'the cascade that its deletion begins; null: named by its uid. A restored object has another, because its uid named one before';

COMMENT ON COLUMN objects.asked_body IS 'of a DELETING object: changes.revision of its body when the deletion was asked for. Compaction keeps it';

COMMENT ON COLUMN objects.asked_at IS 'of a DELETING object: the revision that marked it, which replaced that body';

COMMENT ON COLUMN objects.deletion_confirmer IS 'of a DELETING object: the client that last confirmed its deletion while the guard held it; null: none did';

CREATE TABLE owners (
    dependent bigint NOT NULL,
    owner_uid text COLLATE "C" NOT NULL,
    blocking boolean NOT NULL,
    controller boolean NOT NULL,
    owner_group text COLLATE "C" DEFAULT ''::text NOT NULL,
    owner_kind text COLLATE "C" DEFAULT ''::text NOT NULL,
    owner_name text COLLATE "C" DEFAULT ''::text NOT NULL,
    CONSTRAINT owners_pkey PRIMARY KEY (dependent, owner_uid)
);

CREATE INDEX owners_owner_uid_dependent_idx ON public.owners USING btree (owner_uid, dependent);

CREATE TRIGGER owners_added_track AFTER INSERT ON public.owners FOR EACH ROW EXECUTE FUNCTION gc_track_owner_added();

CREATE TRIGGER owners_removed_track AFTER DELETE ON public.owners REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION gc_track_owners_removed();

COMMENT ON TABLE owners IS 'metadata.ownerReferences of the objects that exist. The owner may not exist. A trigger of objects removes the rows of removed objects, for a whole statement at once.';

COMMENT ON COLUMN owners.dependent IS 'objects.id';

COMMENT ON COLUMN owners.blocking IS 'blockOwnerDeletion';

COMMENT ON COLUMN owners.owner_group IS 'without a version: all versions of a kind are the same objects';

CREATE TABLE provisioned_resource_outbox (
    sequence bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    token text COLLATE "C" NOT NULL,
    resource_id text COLLATE "C" NOT NULL,
    event_type text NOT NULL,
    payload text NOT NULL,
    occurred_at bigint NOT NULL,
    CONSTRAINT provisioned_resource_outbox_pkey PRIMARY KEY (sequence),
    CONSTRAINT provisioned_resource_outbox_token_event_type_check CHECK ((event_type = ANY (ARRAY['broker.ProvisionedResourceRequested'::text, 'broker.ProvisionedResourceReady'::text, 'broker.ProvisionedResourceFailed'::text, 'broker.ProvisionedResourceDeleting'::text, 'broker.ProvisionedResourceDeleted'::text]))),
    CONSTRAINT provisioned_resource_outbox_token_key UNIQUE (token)
);

CREATE INDEX provisioned_resource_outbox_resource_id_idx ON public.provisioned_resource_outbox USING btree (resource_id, sequence);

CREATE TRIGGER provisioned_resource_outbox_track AFTER INSERT ON public.provisioned_resource_outbox FOR EACH ROW EXECUTE FUNCTION broker_track_outbox();

COMMENT ON TABLE provisioned_resource_outbox IS 'Events, in order for each resource: a transaction that adds one has locked its resource.';

COMMENT ON COLUMN provisioned_resource_outbox.token IS 'at most one event of each type in a life';

COMMENT ON COLUMN provisioned_resource_outbox.payload IS 'JSON';

CREATE TABLE provisioned_resource_outbox_reviews (
    resource_id text COLLATE "C" NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    CONSTRAINT provisioned_resource_outbox_reviews_pkey PRIMARY KEY (resource_id)
) WITH (fillfactor=50);

CREATE INDEX provisioned_resource_outbox_reviews_review_after_idx ON public.provisioned_resource_outbox_reviews USING btree (review_after);

CREATE TRIGGER provisioned_resource_outbox_reviews_trace BEFORE INSERT OR UPDATE OF event ON public.provisioned_resource_outbox_reviews FOR EACH ROW WHEN ((COALESCE(current_setting('exeunt.traces'::text, true), ''::text) <> ''::text)) EXECUTE FUNCTION gc_trace('resource_id');

COMMENT ON TABLE provisioned_resource_outbox_reviews IS 'Resources that have events to be published: see package review for the columns.';

COMMENT ON COLUMN provisioned_resource_outbox_reviews.traceparent IS 'the trace that enqueued the row; null: none';

CREATE TABLE provisioned_resource_published (
    token text COLLATE "C" NOT NULL,
    sink text COLLATE "C" NOT NULL,
    CONSTRAINT provisioned_resource_published_pkey PRIMARY KEY (token, sink),
    CONSTRAINT provisioned_resource_published_token_fkey FOREIGN KEY (token) REFERENCES provisioned_resource_outbox(token) ON DELETE CASCADE
);

COMMENT ON TABLE provisioned_resource_published IS 'Which events have reached which sink.';

CREATE TABLE provisioned_resource_reviews (
    id text COLLATE "C" NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    CONSTRAINT provisioned_resource_reviews_pkey PRIMARY KEY (id)
) WITH (fillfactor=50);

CREATE INDEX provisioned_resource_reviews_review_after_idx ON public.provisioned_resource_reviews USING btree (review_after);

CREATE TRIGGER provisioned_resource_reviews_trace BEFORE INSERT OR UPDATE OF event ON public.provisioned_resource_reviews FOR EACH ROW WHEN ((COALESCE(current_setting('exeunt.traces'::text, true), ''::text) <> ''::text)) EXECUTE FUNCTION gc_trace('id');

COMMENT ON TABLE provisioned_resource_reviews IS 'Resources that the reconcile loop must look at: see package review for the columns.';

COMMENT ON COLUMN provisioned_resource_reviews.traceparent IS 'the trace that enqueued the row; null: none';

CREATE TABLE provisioned_resources (
    id text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    blueprint_name text NOT NULL,
    blueprint_version text NOT NULL,
    credential text NOT NULL,
    parameters text NOT NULL,
    xr_api_version text NOT NULL,
    xr_kind text NOT NULL,
    provider_config_api_version text NOT NULL,
    provider_config_kind text NOT NULL,
    deadline bigint NOT NULL,
    request_digest text NOT NULL,
    phase text NOT NULL,
    phase_since bigint NOT NULL,
    token_id text NOT NULL,
    created_at bigint NOT NULL,
    converge_started_at bigint NOT NULL,
    deletion_requested_at bigint,
    round_token text NOT NULL,
    round_until bigint NOT NULL,
    CONSTRAINT provisioned_resources_deletion_requested_at_check CHECK (((deletion_requested_at IS NOT NULL) = (phase = ANY (ARRAY['Deregistering'::text, 'Deprovisioning'::text, 'Deleted'::text])))),
    CONSTRAINT provisioned_resources_pkey PRIMARY KEY (id),
    CONSTRAINT provisioned_resources_status_check CHECK ((phase = ANY (ARRAY['Pending'::text, 'Provisioning'::text, 'Enrolling'::text, 'Ready'::text, 'Failed'::text, 'Deregistering'::text, 'Deprovisioning'::text, 'Deleted'::text])))
);

CREATE UNIQUE INDEX provisioned_resources_project_name_idx ON public.provisioned_resources USING btree (project, name) WHERE (phase <> 'Deleted'::text);

COMMENT ON INDEX provisioned_resources_project_name_idx IS 'A name is free again when the resource that had it is Deleted.';

CREATE TRIGGER provisioned_resources_created_track AFTER INSERT ON public.provisioned_resources FOR EACH ROW EXECUTE FUNCTION broker_track_resource();

CREATE TRIGGER provisioned_resources_phase_track AFTER UPDATE ON public.provisioned_resources FOR EACH ROW WHEN ((new.phase <> old.phase)) EXECUTE FUNCTION broker_track_resource();

COMMENT ON TABLE provisioned_resources IS 'Provisioned resources. Times are Unix milliseconds.';

COMMENT ON COLUMN provisioned_resources.parameters IS 'JSON';

COMMENT ON COLUMN provisioned_resources.deadline IS 'milliseconds';

COMMENT ON COLUMN provisioned_resources.token_id IS 'empty: none bound yet';

COMMENT ON COLUMN provisioned_resources.deletion_requested_at IS 'null: never';

COMMENT ON COLUMN provisioned_resources.round_token IS 'of the replica whose round it is; empty: none';

CREATE TABLE pull_days (
    repository_id bigint NOT NULL,
    day bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    pulls bigint NOT NULL,
    pulled_at bigint NOT NULL,
    CONSTRAINT pull_days_pkey PRIMARY KEY (repository_id, day, name, digest),
    CONSTRAINT pull_days_repository_id_fkey FOREIGN KEY (repository_id) REFERENCES repositories(id) ON DELETE CASCADE
);

CREATE INDEX pull_days_day_idx ON public.pull_days USING btree (day);

COMMENT ON TABLE pull_days IS 'What was pulled, for simulations of RetentionPolicies. Deleted by age.';

COMMENT ON COLUMN pull_days.day IS 'since 1970, UTC';

COMMENT ON COLUMN pull_days.name IS 'the tag; empty: by its digest';

COMMENT ON COLUMN pull_days.digest IS 'of the manifest';

COMMENT ON COLUMN pull_days.pulled_at IS 'Unix milliseconds; the last time, to the minute';

CREATE TABLE quota_reviews (
    uid text COLLATE "C" NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    CONSTRAINT quota_reviews_pkey PRIMARY KEY (uid)
) WITH (fillfactor=50);

CREATE INDEX quota_reviews_review_after_idx ON public.quota_reviews USING btree (review_after);

CREATE TRIGGER quota_reviews_trace BEFORE INSERT OR UPDATE OF event ON public.quota_reviews FOR EACH ROW WHEN ((COALESCE(current_setting('exeunt.traces'::text, true), ''::text) <> ''::text)) EXECUTE FUNCTION gc_trace('uid');

COMMENT ON TABLE quota_reviews IS 'ResourceQuotas whose status must be written, by uid: see package review for the columns. The transaction that changes the usage adds the row.';

COMMENT ON COLUMN quota_reviews.traceparent IS 'the trace that enqueued the row; null: none';

CREATE TABLE registry_quotas (
    uid text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    namespace text COLLATE "C",
    most bigint NOT NULL,
    bytes bigint NOT NULL,
    CONSTRAINT registry_quotas_pkey PRIMARY KEY (uid)
);

CREATE INDEX registry_quotas_namespace_idx ON public.registry_quotas USING btree (namespace) WHERE (namespace IS NOT NULL);

CREATE TRIGGER registry_quotas_review_trigger AFTER UPDATE OF bytes ON public.registry_quotas FOR EACH ROW WHEN (((new.namespace IS NOT NULL) AND (new.bytes <> old.bytes))) EXECUTE FUNCTION registry_quotas_review();

COMMENT ON TABLE registry_quotas IS 'The limits of bytes of blobs, each with what is used: one row for each object that sets one. A blob counts once in each repository that has it. Repositories and namespaces without a limit have no row, and are not counted.';

COMMENT ON COLUMN registry_quotas.uid IS 'of a ResourceQuota or a Repository';

COMMENT ON COLUMN registry_quotas.name IS 'for people';

COMMENT ON COLUMN registry_quotas.namespace IS 'of the ResourceQuota, which limits all its repositories; null: of a Repository, which limits itself';

CREATE TABLE repositories (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    top_level_namespace_id bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    gc_hold boolean DEFAULT false NOT NULL,
    gc_delay bigint,
    object_uid text COLLATE "C",
    deleting boolean DEFAULT false NOT NULL,
    removed_at bigint,
    CONSTRAINT repositories_gc_delay_check CHECK ((gc_delay >= 0)),
    CONSTRAINT repositories_path_key UNIQUE (path),
    CONSTRAINT repositories_pkey PRIMARY KEY (id),
    CONSTRAINT repositories_top_level_namespace_id_fkey FOREIGN KEY (top_level_namespace_id) REFERENCES top_level_namespaces(id) ON DELETE CASCADE
);

CREATE UNIQUE INDEX repositories_object_uid_idx ON public.repositories USING btree (object_uid) WHERE (object_uid IS NOT NULL);

CREATE INDEX repositories_top_level_namespace_id_idx ON public.repositories USING btree (top_level_namespace_id);

COMMENT ON TABLE repositories IS 'What clients push to and pull from. All content is deleted with it.';

COMMENT ON COLUMN repositories.path IS 'the whole name: shop/web';

COMMENT ON COLUMN repositories.created_at IS 'Unix milliseconds';

COMMENT ON COLUMN repositories.gc_hold IS 'nothing of this repository is collected';

COMMENT ON COLUMN repositories.gc_delay IS 'milliseconds from an event to the review of its manifest; null: the default of the event';

COMMENT ON COLUMN repositories.object_uid IS 'of its Repository; null: not made yet';

COMMENT ON COLUMN repositories.deleting IS 'pushes are refused';

COMMENT ON COLUMN repositories.removed_at IS 'Unix milliseconds; null: the Repository exists. The path of a removed one is @ and the uid, which no request can ask for';

CREATE TABLE repository_blobs (
    top_level_namespace_id bigint NOT NULL,
    repository_id bigint NOT NULL,
    blob_id bigint NOT NULL,
    created_at bigint NOT NULL,
    CONSTRAINT repository_blobs_blob_id_fkey FOREIGN KEY (blob_id) REFERENCES blobs(id) ON DELETE CASCADE,
    CONSTRAINT repository_blobs_pkey PRIMARY KEY (repository_id, blob_id),
    CONSTRAINT repository_blobs_repository_id_fkey FOREIGN KEY (repository_id) REFERENCES repositories(id) ON DELETE CASCADE
);

CREATE INDEX repository_blobs_blob_id_idx ON public.repository_blobs USING btree (blob_id, repository_id);

COMMENT ON INDEX repository_blobs_blob_id_idx IS 'With the repository, as on SQLite, where an index holds the primary key: the planner also uses it to find one link, and popular blobs have thousands.';

CREATE TRIGGER registry_quotas_link_trigger AFTER INSERT ON public.repository_blobs FOR EACH ROW EXECUTE FUNCTION registry_quotas_link();

CREATE TRIGGER registry_quotas_unlink_trigger AFTER DELETE ON public.repository_blobs REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION registry_quotas_unlink();

COMMENT ON TABLE repository_blobs IS 'Which blobs a repository may serve: pushed or mounted there.';

COMMENT ON COLUMN repository_blobs.created_at IS 'Unix milliseconds';

CREATE TABLE restore_reviews (
    name text COLLATE "C" NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    traceparent text,
    CONSTRAINT restore_reviews_pkey PRIMARY KEY (name)
) WITH (fillfactor=50);

CREATE INDEX restore_reviews_review_after_idx ON public.restore_reviews USING btree (review_after);

COMMENT ON TABLE restore_reviews IS 'Restores that go on: see package review for the columns.';

CREATE TABLE restores (
    name text COLLATE "C" NOT NULL,
    requester text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint,
    state text NOT NULL,
    CONSTRAINT restores_pkey PRIMARY KEY (name)
);

CREATE INDEX restores_requester_idx ON public.restores USING btree (requester, created_at);

COMMENT ON TABLE restores IS 'Restores that clients asked for: package deletion/archive.';

COMMENT ON COLUMN restores.requester IS 'the name of the user whose rights it has';

COMMENT ON COLUMN restores.created_at IS 'Unix milliseconds';

COMMENT ON COLUMN restores.ended_at IS 'null: it goes on';

COMMENT ON COLUMN restores.state IS 'JSON: what is asked for, by whom, and the results so far';

CREATE TABLE revision (
    one integer NOT NULL,
    current bigint NOT NULL,
    compacted bigint NOT NULL,
    archived bigint DEFAULT 0 NOT NULL,
    quotas bigint DEFAULT 0 NOT NULL,
    changed_at bigint DEFAULT 0 NOT NULL,
    moved bigint DEFAULT 0 NOT NULL,
    policies bigint DEFAULT 0 NOT NULL,
    CONSTRAINT revision_one_check CHECK ((one = 1)),
    CONSTRAINT revision_pkey PRIMARY KEY (one)
) WITH (fillfactor=10);

COMMENT ON TABLE revision IS 'The counter of the object log: one row. Its lock is the lock for writing objects.';

COMMENT ON COLUMN revision.current IS 'the newest revision';

COMMENT ON COLUMN revision.compacted IS 'states before this revision are gone';

COMMENT ON COLUMN revision.archived IS 'bytes of the bodies that the archive holds: kept here because every write changes this row anyway';

COMMENT ON COLUMN revision.quotas IS 'revision of the last change to what a ResourceQuota limits: every write reads this row anyway';

COMMENT ON COLUMN revision.changed_at IS 'changes.at of the newest revision';

COMMENT ON COLUMN revision.moved IS 'states that changes up to this revision replaced are not in the log any more';

COMMENT ON COLUMN revision.policies IS 'revision of the last write of an ExpiryPolicy or ClusterExpiryPolicy';

CREATE TABLE seal_keys (
    name text COLLATE "C" NOT NULL,
    check_value bytea NOT NULL,
    sealing boolean DEFAULT false NOT NULL,
    CONSTRAINT seal_keys_pkey PRIMARY KEY (name)
);

CREATE UNIQUE INDEX seal_keys_sealing_idx ON public.seal_keys USING btree (sealing) WHERE sealing;

COMMENT ON TABLE seal_keys IS 'The keys that may have sealed a body. A server without one of them is refused while a body needs it. See docs/spec/sealing.md.';

COMMENT ON COLUMN seal_keys.check_value IS 'a known text, sealed with the key';

COMMENT ON COLUMN seal_keys.sealing IS 'every replica seals with this one';

CREATE TABLE sealed_kinds (
    kind text COLLATE "C" NOT NULL,
    CONSTRAINT sealed_kinds_pkey PRIMARY KEY (kind)
);

COMMENT ON TABLE sealed_kinds IS 'The kinds that may have sealed bodies.';

CREATE TABLE small_blobs (
    blob_id bigint NOT NULL,
    content bytea STORAGE EXTERNAL NOT NULL,
    CONSTRAINT small_blobs_blob_id_fkey FOREIGN KEY (blob_id) REFERENCES blobs(id) ON DELETE CASCADE,
    CONSTRAINT small_blobs_pkey PRIMARY KEY (blob_id)
);

COMMENT ON TABLE small_blobs IS 'The bytes of small blobs. One transaction writes row and bytes, so they need no file, no sync of their own and no unlinking.';

CREATE TABLE tag_days (
    repository_id bigint NOT NULL,
    day bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    was_digest text,
    was_pushed_at bigint,
    digest text,
    pushed_at bigint,
    CONSTRAINT tag_days_pkey PRIMARY KEY (repository_id, day, name),
    CONSTRAINT tag_days_repository_id_fkey FOREIGN KEY (repository_id) REFERENCES repositories(id) ON DELETE CASCADE
);

CREATE INDEX tag_days_day_idx ON public.tag_days USING btree (day);

COMMENT ON TABLE tag_days IS 'What was pushed and deleted, likewise: the state of each tag before the first change of a day, and after the last.';

COMMENT ON COLUMN tag_days.day IS 'since 1970, UTC';

COMMENT ON COLUMN tag_days.was_digest IS 'of the manifest; null: it is not known';

COMMENT ON COLUMN tag_days.was_pushed_at IS 'Unix milliseconds; null: the tag did not exist';

COMMENT ON COLUMN tag_days.pushed_at IS 'null: the tag does not exist';

CREATE TABLE tags (
    top_level_namespace_id bigint NOT NULL,
    repository_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    manifest_id bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    pulled_at bigint,
    fetched_at bigint,
    CONSTRAINT tags_manifest_id_fkey FOREIGN KEY (manifest_id) REFERENCES manifests(id) ON DELETE CASCADE,
    CONSTRAINT tags_pkey PRIMARY KEY (repository_id, name),
    CONSTRAINT tags_repository_id_fkey FOREIGN KEY (repository_id) REFERENCES repositories(id) ON DELETE CASCADE
);

CREATE INDEX tags_manifest_id_idx ON public.tags USING btree (manifest_id);

CREATE TRIGGER gc_track_deleted_tags_trigger AFTER DELETE ON public.tags REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION gc_track_deleted_tags();

CREATE TRIGGER gc_track_switched_tags_trigger AFTER UPDATE OF manifest_id ON public.tags FOR EACH ROW WHEN ((old.manifest_id <> new.manifest_id)) EXECUTE FUNCTION gc_track_switched_tags();

CREATE TRIGGER tags_changed_day_trigger AFTER INSERT OR DELETE ON public.tags FOR EACH ROW EXECUTE FUNCTION tags_day();

CREATE TRIGGER tags_deleted_remember_trigger AFTER DELETE ON public.tags REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION tags_deleted_remember();

CREATE TRIGGER tags_pushed_day_trigger AFTER UPDATE OF manifest_id, updated_at ON public.tags FOR EACH ROW WHEN ((new.updated_at > old.updated_at)) EXECUTE FUNCTION tags_day();

CREATE TRIGGER tags_switched_remember_trigger AFTER UPDATE OF manifest_id ON public.tags FOR EACH ROW WHEN ((old.manifest_id <> new.manifest_id)) EXECUTE FUNCTION tags_switched_remember();

COMMENT ON COLUMN tags.created_at IS 'Unix milliseconds';

COMMENT ON COLUMN tags.updated_at IS 'Unix milliseconds; when it was last pushed';

COMMENT ON COLUMN tags.pulled_at IS 'Unix milliseconds, to the hour; when its manifest was last pulled; null: not since it is recorded';

COMMENT ON COLUMN tags.fetched_at IS 'Unix milliseconds; when the upstream of a cached repository last named its manifest; null: a client pushed the tag';

CREATE TABLE top_level_namespaces (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    deleting boolean DEFAULT false NOT NULL,
    CONSTRAINT top_level_namespaces_name_key UNIQUE (name),
    CONSTRAINT top_level_namespaces_pkey PRIMARY KEY (id)
);

COMMENT ON TABLE top_level_namespaces IS 'The first component of the paths of repositories. Deleted with the API namespace.';

COMMENT ON COLUMN top_level_namespaces.created_at IS 'Unix milliseconds';

COMMENT ON COLUMN top_level_namespaces.deleting IS 'the API namespace is Terminating';

CREATE TABLE works (
    id text COLLATE "C" NOT NULL,
    what text NOT NULL,
    requested_by text NOT NULL,
    began_at bigint NOT NULL,
    until bigint NOT NULL,
    far text NOT NULL,
    done bigint NOT NULL,
    total bigint NOT NULL,
    CONSTRAINT works_pkey PRIMARY KEY (id)
) WITH (fillfactor=50);

COMMENT ON TABLE works IS 'What takes long in other processes, while it goes on: see package underway.';

COMMENT ON COLUMN works.requested_by IS 'the user; empty: a command on the server''s own data';

COMMENT ON COLUMN works.until IS 'when the row counts no more, unless its process renews it';

COMMENT ON COLUMN works.far IS 'how far it is, for people';

COMMENT ON COLUMN works.total IS '0: not known';
