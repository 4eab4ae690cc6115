-- Blobs have numbers, in the order of their coming. The tables that say who has
-- and who uses a blob are keyed by it, and not by the digest: what was pushed
-- together, and goes together, then lies together, however many blobs there are.
-- With digests each of those rows was on a page of its own. See docs/decisions/0011.
--
-- What keeps a blob that is used from being deleted are the foreign keys of
-- gc_blobs_configurations and gc_blobs_layers, which have a row for every use: the
-- same keys in manifests and layers needed two more indexes for it.

DROP TRIGGER blobs_leave_database_trigger;
DROP TRIGGER gc_track_blob_uploads_again_trigger;
DROP TRIGGER gc_track_blob_uploads_trigger;
DROP TRIGGER gc_track_configuration_blobs_trigger;
DROP TRIGGER gc_track_deleted_blobs_trigger;
DROP TRIGGER gc_track_deleted_layers_trigger;
DROP TRIGGER gc_track_deleted_manifests_trigger;
DROP TRIGGER gc_track_deleted_uploads_trigger;
DROP TRIGGER gc_track_layer_blobs_trigger;
DROP TRIGGER gc_track_manifest_uploads_again_trigger;
DROP TRIGGER gc_track_moved_blobs_trigger;

ALTER TABLE blobs RENAME TO old_blobs;
CREATE TABLE blobs (
    -- Content that was uploaded and verified, once for all repositories. A row
    -- is written after the bytes have been synced, and goes before they do.
    id            INTEGER PRIMARY KEY,
    digest        TEXT NOT NULL UNIQUE,    -- sha256:… or sha512:…
    path          TEXT NOT NULL UNIQUE,    -- in the blob store; one for each upload
    size          INTEGER NOT NULL,
    media_type_id INTEGER NOT NULL REFERENCES media_types (id),
    created_at    INTEGER NOT NULL,        -- Unix milliseconds
    small         INTEGER NOT NULL DEFAULT 0, -- boolean: the bytes are in small_blobs
    damaged       INTEGER NOT NULL DEFAULT 0  -- boolean: found to be so; not handed out, and replaced by the next upload
) STRICT;
INSERT INTO blobs (digest, path, size, media_type_id, created_at, small, damaged)
SELECT digest, path, size, media_type_id, created_at, small, damaged FROM old_blobs ORDER BY created_at, path;

ALTER TABLE small_blobs RENAME TO old_small_blobs;
CREATE TABLE small_blobs (
    -- The bytes of small blobs. They go with their row.
    blob_id INTEGER PRIMARY KEY REFERENCES blobs (id) ON DELETE CASCADE,
    content BLOB NOT NULL
) STRICT;
INSERT INTO small_blobs (blob_id, content)
SELECT b.id, s.content FROM blobs b CROSS JOIN old_small_blobs s ON s.digest = b.digest ORDER BY b.id;
DROP TABLE old_small_blobs;

ALTER TABLE repository_blobs RENAME TO old_repository_blobs;
CREATE TABLE repository_blobs (
    -- Which blobs a repository may hand out: pushed or mounted there.
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    blob_id                INTEGER NOT NULL REFERENCES blobs (id) ON DELETE CASCADE,
    created_at             INTEGER NOT NULL, -- Unix milliseconds
    PRIMARY KEY (repository_id, blob_id)
) STRICT, WITHOUT ROWID;
INSERT INTO repository_blobs (top_level_namespace_id, repository_id, blob_id, created_at)
SELECT l.top_level_namespace_id, l.repository_id, b.id, l.created_at
FROM old_repository_blobs l CROSS JOIN blobs b ON b.digest = l.blob_digest ORDER BY l.repository_id, b.id;
DROP TABLE old_repository_blobs;
CREATE INDEX repository_blobs_blob_id_idx ON repository_blobs (blob_id);

ALTER TABLE layers RENAME TO old_layers;
CREATE TABLE layers (
    -- Which blobs a manifest holds, its configuration apart. A layer that
    -- must not be distributed is here only if its blob is.
    id                     INTEGER PRIMARY KEY,
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL, -- goes with its manifests
    manifest_id            INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    blob_id                INTEGER NOT NULL, -- refers to blobs by gc_blobs_layers
    media_type_id          INTEGER NOT NULL REFERENCES media_types (id),
    size                   INTEGER NOT NULL,
    UNIQUE (manifest_id, blob_id)
) STRICT;
INSERT INTO layers (id, top_level_namespace_id, repository_id, manifest_id, blob_id, media_type_id, size)
SELECT l.id, l.top_level_namespace_id, l.repository_id, l.manifest_id, b.id, l.media_type_id, l.size
FROM old_layers l CROSS JOIN blobs b ON b.digest = l.digest ORDER BY l.id;
DROP TABLE old_layers;

-- The table is not made again: tags, lists and layers would go with it.
ALTER TABLE manifests ADD COLUMN configuration_blob_id INTEGER /* null: none; refers to blobs by gc_blobs_configurations */;
UPDATE manifests SET configuration_blob_id = (SELECT b.id FROM blobs b WHERE b.digest = configuration_blob_digest)
WHERE configuration_blob_digest IS NOT NULL;
DROP INDEX manifests_configuration_blob_digest_idx;
ALTER TABLE manifests DROP COLUMN configuration_blob_digest;
DROP TABLE old_blobs;

DROP TABLE gc_blobs_configurations;
CREATE TABLE gc_blobs_configurations (
    -- Which manifests, of any repository, use a blob as their configuration.
    -- Kept by triggers.
    blob_id                INTEGER NOT NULL REFERENCES blobs (id),
    manifest_id            INTEGER NOT NULL,
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL,
    PRIMARY KEY (blob_id, manifest_id)
) STRICT, WITHOUT ROWID;
INSERT INTO gc_blobs_configurations (blob_id, manifest_id, top_level_namespace_id, repository_id)
SELECT m.configuration_blob_id, m.id, m.top_level_namespace_id, m.repository_id
FROM manifests m WHERE m.configuration_blob_id IS NOT NULL ORDER BY m.configuration_blob_id, m.id;

DROP TABLE gc_blobs_layers;
CREATE TABLE gc_blobs_layers (
    -- Which layers, of any repository, are a blob. Kept by triggers.
    blob_id                INTEGER NOT NULL REFERENCES blobs (id),
    layer_id               INTEGER NOT NULL,
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL,
    PRIMARY KEY (blob_id, layer_id)
) STRICT, WITHOUT ROWID;
INSERT INTO gc_blobs_layers (blob_id, layer_id, top_level_namespace_id, repository_id)
SELECT l.blob_id, l.id, l.top_level_namespace_id, l.repository_id FROM layers l ORDER BY l.blob_id, l.id;

-- As before, but for the numbers.

CREATE TRIGGER blobs_leave_database_trigger AFTER UPDATE ON blobs WHEN OLD.small = 1 AND NEW.small = 0
BEGIN
    DELETE FROM small_blobs WHERE blob_id = OLD.id;
END;

CREATE TRIGGER gc_track_blob_uploads_again_trigger AFTER UPDATE ON blobs
BEGIN
    INSERT INTO gc_enqueue_blob (digest, event) VALUES (NEW.digest, 'blob_upload');
END;

CREATE TRIGGER gc_track_blob_uploads_trigger AFTER INSERT ON blobs
BEGIN
    INSERT INTO gc_enqueue_blob (digest, event) VALUES (NEW.digest, 'blob_upload');
END;

CREATE TRIGGER gc_track_deleted_blobs_trigger AFTER DELETE ON blobs WHEN OLD.small = 0
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'blob_delete');
END;

CREATE TRIGGER gc_track_moved_blobs_trigger AFTER UPDATE ON blobs WHEN OLD.path <> NEW.path AND OLD.small = 0
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'blob_delete');
END;

CREATE TRIGGER gc_track_deleted_uploads_trigger AFTER DELETE ON blob_uploads
WHEN NOT EXISTS (SELECT 1 FROM blobs b WHERE b.path = OLD.path)
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'upload_delete');
END;

CREATE TRIGGER gc_track_layer_blobs_trigger AFTER INSERT ON layers
BEGIN
    INSERT INTO gc_blobs_layers (blob_id, layer_id, top_level_namespace_id, repository_id)
    VALUES (NEW.blob_id, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (blob_id, layer_id) DO NOTHING;
END;

CREATE TRIGGER gc_track_deleted_layers_trigger AFTER DELETE ON layers
BEGIN
    DELETE FROM gc_blobs_layers WHERE blob_id = OLD.blob_id AND layer_id = OLD.id;
    INSERT INTO gc_enqueue_blob (digest, event)
    VALUES ((SELECT b.digest FROM blobs b WHERE b.id = OLD.blob_id), 'layer_delete');
END;

CREATE TRIGGER gc_track_configuration_blobs_trigger AFTER INSERT ON manifests
WHEN NEW.configuration_blob_id IS NOT NULL
BEGIN
    INSERT INTO gc_blobs_configurations (blob_id, manifest_id, top_level_namespace_id, repository_id)
    VALUES (NEW.configuration_blob_id, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (blob_id, manifest_id) DO NOTHING;
END;

CREATE TRIGGER gc_track_deleted_manifests_trigger AFTER DELETE ON manifests
WHEN OLD.configuration_blob_id IS NOT NULL
BEGIN
    DELETE FROM gc_blobs_configurations WHERE blob_id = OLD.configuration_blob_id AND manifest_id = OLD.id;
    INSERT INTO gc_enqueue_blob (digest, event)
    VALUES ((SELECT b.digest FROM blobs b WHERE b.id = OLD.configuration_blob_id), 'manifest_delete');
END;

CREATE TRIGGER gc_track_manifest_uploads_again_trigger AFTER UPDATE ON manifests
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event) VALUES (NEW.id, 'manifest_upload');
END;
