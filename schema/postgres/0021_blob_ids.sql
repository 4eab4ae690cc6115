-- Blobs have numbers, in the order of their coming. The tables that say who has
-- and who uses a blob are keyed by it, and not by the digest: what was pushed
-- together, and goes together, then lies together, however many blobs there are.
-- With digests each of those rows was on a page of its own. See docs/decisions/0011.
--
-- What keeps a blob that is used from being deleted are the foreign keys of
-- gc_blobs_configurations and gc_blobs_layers, which have a row for every use: the
-- same keys in manifests and layers needed two more indexes for it.

DROP TRIGGER gc_track_configuration_blobs_trigger ON manifests;
DROP TRIGGER gc_track_manifest_uploads_trigger ON manifests;

ALTER TABLE blobs ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY;

ALTER TABLE small_blobs ADD COLUMN blob_id bigint;
UPDATE small_blobs s SET blob_id = b.id FROM blobs b WHERE b.digest = s.digest;
ALTER TABLE small_blobs DROP COLUMN digest;

ALTER TABLE repository_blobs ADD COLUMN blob_id bigint;
UPDATE repository_blobs l SET blob_id = b.id FROM blobs b WHERE b.digest = l.blob_digest;
ALTER TABLE repository_blobs DROP COLUMN blob_digest;

ALTER TABLE layers ADD COLUMN blob_id bigint;
UPDATE layers l SET blob_id = b.id FROM blobs b WHERE b.digest = l.digest;
ALTER TABLE layers DROP COLUMN digest;

ALTER TABLE manifests ADD COLUMN configuration_blob_id bigint;
UPDATE manifests m SET configuration_blob_id = b.id FROM blobs b WHERE b.digest = m.configuration_blob_digest;
ALTER TABLE manifests DROP COLUMN configuration_blob_digest;

ALTER TABLE gc_blobs_configurations ADD COLUMN blob_id bigint;
UPDATE gc_blobs_configurations g SET blob_id = b.id FROM blobs b WHERE b.digest = g.digest;
ALTER TABLE gc_blobs_configurations DROP COLUMN digest;

ALTER TABLE gc_blobs_layers ADD COLUMN blob_id bigint;
UPDATE gc_blobs_layers g SET blob_id = b.id FROM blobs b WHERE b.digest = g.digest;
ALTER TABLE gc_blobs_layers DROP COLUMN digest;

ALTER TABLE blobs DROP CONSTRAINT blobs_pkey, ADD PRIMARY KEY (id), ADD UNIQUE (digest);
ALTER TABLE small_blobs ADD PRIMARY KEY (blob_id),
    ADD FOREIGN KEY (blob_id) REFERENCES blobs (id) ON DELETE CASCADE;
ALTER TABLE repository_blobs ADD PRIMARY KEY (repository_id, blob_id),
    ADD FOREIGN KEY (blob_id) REFERENCES blobs (id) ON DELETE CASCADE;
CREATE INDEX repository_blobs_blob_id_idx ON repository_blobs (blob_id);
ALTER TABLE layers ALTER COLUMN blob_id SET NOT NULL, ADD UNIQUE (manifest_id, blob_id),
    DROP CONSTRAINT layers_repository_id_fkey;
DROP INDEX layers_repository_id_idx;
COMMENT ON COLUMN layers.repository_id IS 'goes with its manifests';
COMMENT ON COLUMN layers.blob_id IS 'refers to blobs by gc_blobs_layers';
COMMENT ON COLUMN manifests.configuration_blob_id IS 'null: none; refers to blobs by gc_blobs_configurations';
ALTER TABLE gc_blobs_configurations ADD PRIMARY KEY (blob_id, manifest_id),
    ADD FOREIGN KEY (blob_id) REFERENCES blobs (id) ON DELETE RESTRICT;
ALTER TABLE gc_blobs_layers ADD PRIMARY KEY (blob_id, layer_id),
    ADD FOREIGN KEY (blob_id) REFERENCES blobs (id) ON DELETE RESTRICT;

-- As before, but for the numbers.

CREATE OR REPLACE FUNCTION blobs_leave_database() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM small_blobs WHERE blob_id = OLD.id;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION gc_track_configuration_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gc_blobs_configurations (blob_id, manifest_id, top_level_namespace_id, repository_id)
    VALUES (NEW.configuration_blob_id, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (blob_id, manifest_id) DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER gc_track_configuration_blobs_trigger AFTER INSERT ON manifests FOR EACH ROW
WHEN (NEW.configuration_blob_id IS NOT NULL) EXECUTE FUNCTION gc_track_configuration_blobs();
CREATE TRIGGER gc_track_manifest_uploads_trigger AFTER INSERT OR UPDATE ON manifests FOR EACH ROW
EXECUTE FUNCTION gc_track_manifest_uploads();

CREATE OR REPLACE FUNCTION gc_track_layer_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gc_blobs_layers (blob_id, layer_id, top_level_namespace_id, repository_id)
    SELECT a.blob_id, a.id, a.top_level_namespace_id, a.repository_id FROM added a
    ON CONFLICT (blob_id, layer_id) DO NOTHING;
    RETURN NULL;
END $$;

-- gc_digests returns the digests of blobs.
CREATE FUNCTION gc_digests(ids bigint[]) RETURNS text[] LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    RETURN ARRAY(SELECT b.digest FROM blobs b WHERE b.id = ANY (ids));
END $$;

CREATE OR REPLACE FUNCTION gc_track_deleted_layers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gc_blobs_layers WHERE ctid = ANY (ARRAY(
        SELECT f.ctid FROM removed r CROSS JOIN LATERAL (
            SELECT g.ctid FROM gc_blobs_layers g WHERE g.blob_id = r.blob_id AND g.layer_id = r.id OFFSET 0) AS f));
    PERFORM gc_enqueue_blobs(gc_digests(array_agg(r.blob_id)), 'layer_delete') FROM removed r HAVING count(*) > 0;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION gc_track_deleted_manifests() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gc_blobs_configurations WHERE ctid = ANY (ARRAY(
        SELECT f.ctid FROM removed r CROSS JOIN LATERAL (
            SELECT g.ctid FROM gc_blobs_configurations g
            WHERE g.blob_id = r.configuration_blob_id AND g.manifest_id = r.id OFFSET 0) AS f));
    PERFORM gc_enqueue_blobs(gc_digests(array_agg(r.configuration_blob_id)), 'manifest_delete')
    FROM removed r HAVING count(r.configuration_blob_id) > 0;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION gc_order_deleted_manifests(ids bigint[]) RETURNS void LANGUAGE plpgsql
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
END $$;
