-- Blobs are found by their digest through a table of its own, blob_digests. Its
-- entries stay when a blob goes: digests are random, so in a large registry each
-- is on a page of its own, which a review would have to read, log and write back.
-- What refers to a blob that is gone is not believed, and is swept later, many
-- from a page at once. See docs/decisions/0012.
--
-- For this blobs is made again, without its index by digest, and with it the
-- tables that refer to it. The queue of reviews remembers the number of a blob, so
-- that its review need not look for it by digest.

DROP TRIGGER blobs_leave_database_trigger;
DROP TRIGGER gc_track_blob_uploads_again_trigger;
DROP TRIGGER gc_track_blob_uploads_trigger;
DROP TRIGGER gc_track_configuration_blobs_trigger;
DROP TRIGGER gc_track_deleted_blobs_trigger;
DROP TRIGGER gc_track_deleted_layers_trigger;
DROP TRIGGER gc_track_deleted_manifests_trigger;
DROP TRIGGER gc_track_deleted_uploads_trigger;
DROP TRIGGER gc_track_layer_blobs_trigger;
DROP TRIGGER gc_track_moved_blobs_trigger;

ALTER TABLE blobs RENAME TO old_blobs;
CREATE TABLE blobs (
    -- Content that was uploaded and verified, once for all repositories. A row
    -- is written after the bytes have been synced, and goes before they do.
    id            INTEGER PRIMARY KEY,
    digest        TEXT NOT NULL,           -- sha256:… or sha512:…; one blob of each, by a trigger
    path          TEXT NOT NULL UNIQUE,    -- in the blob store; one for each upload
    size          INTEGER NOT NULL,
    media_type_id INTEGER NOT NULL REFERENCES media_types (id),
    created_at    INTEGER NOT NULL,        -- Unix milliseconds
    small         INTEGER NOT NULL DEFAULT 0, -- boolean: the bytes are in small_blobs
    damaged       INTEGER NOT NULL DEFAULT 0  -- boolean: found to be so; not handed out, and replaced by the next upload
) STRICT;
INSERT INTO blobs (id, digest, path, size, media_type_id, created_at, small, damaged)
SELECT id, digest, path, size, media_type_id, created_at, small, damaged FROM old_blobs ORDER BY id;

CREATE TABLE blob_digests (
    -- The number of the blob of a digest, if there is a blob with that number and
    -- that digest: entries outlive their blob. See blobs_by_digest.
    digest  TEXT PRIMARY KEY,
    blob_id INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO blob_digests (digest, blob_id) SELECT digest, id FROM blobs ORDER BY digest;

ALTER TABLE small_blobs RENAME TO old_small_blobs;
CREATE TABLE small_blobs (
    -- The bytes of small blobs. They go with their row.
    blob_id INTEGER PRIMARY KEY REFERENCES blobs (id) ON DELETE CASCADE,
    content BLOB NOT NULL
) STRICT;
INSERT INTO small_blobs (blob_id, content) SELECT blob_id, content FROM old_small_blobs ORDER BY blob_id;
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
SELECT top_level_namespace_id, repository_id, blob_id, created_at FROM old_repository_blobs ORDER BY repository_id, blob_id;
DROP TABLE old_repository_blobs;
CREATE INDEX repository_blobs_blob_id_idx ON repository_blobs (blob_id);

ALTER TABLE gc_blobs_configurations RENAME TO old_gc_blobs_configurations;
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
SELECT blob_id, manifest_id, top_level_namespace_id, repository_id FROM old_gc_blobs_configurations ORDER BY blob_id, manifest_id;
DROP TABLE old_gc_blobs_configurations;

ALTER TABLE gc_blobs_layers RENAME TO old_gc_blobs_layers;
CREATE TABLE gc_blobs_layers (
    -- Which layers, of any repository, are a blob. Kept by triggers.
    blob_id                INTEGER NOT NULL REFERENCES blobs (id),
    layer_id               INTEGER NOT NULL,
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL,
    PRIMARY KEY (blob_id, layer_id)
) STRICT, WITHOUT ROWID;
INSERT INTO gc_blobs_layers (blob_id, layer_id, top_level_namespace_id, repository_id)
SELECT blob_id, layer_id, top_level_namespace_id, repository_id FROM old_gc_blobs_layers ORDER BY blob_id, layer_id;
DROP TABLE old_gc_blobs_layers;

DROP TABLE old_blobs;

-- Whoever has a digest asks here.
CREATE VIEW blobs_by_digest AS
SELECT b.id, d.digest, b.path, b.size, b.small, b.damaged
FROM blob_digests d CROSS JOIN blobs b ON b.id = d.blob_id AND b.digest = d.digest;

CREATE TRIGGER blobs_have_digests_trigger AFTER INSERT ON blobs
BEGIN
    INSERT INTO blob_digests (digest, blob_id) VALUES (NEW.digest, NEW.id)
    ON CONFLICT (digest) DO UPDATE SET blob_id = CASE
        WHEN EXISTS (SELECT 1 FROM blobs b WHERE b.id = blob_digests.blob_id AND b.id <> NEW.id AND b.digest = NEW.digest)
        THEN RAISE(ABORT, 'UNIQUE constraint failed: blobs.digest')
        ELSE NEW.id END;
END;

ALTER TABLE gc_blob_review_queue ADD COLUMN blob_id INTEGER /* that of the blob when it was queued; null: look for it */;

DROP VIEW gc_enqueue_blob;
CREATE VIEW gc_enqueue_blob AS SELECT '' AS digest, 0 AS blob_id, '' AS event, 0 AS together;
CREATE TRIGGER gc_enqueue_blob_trigger INSTEAD OF INSERT ON gc_enqueue_blob
BEGIN
    INSERT INTO gc_blob_review_queue (digest, blob_id, review_after, review_count, event, created_at)
    SELECT NEW.digest, NEW.blob_id, s.now + s.delay + abs(coalesce(NEW.together * 2654435761, random()) % (1 + min(s.delay / 10, 60000))), 0, NEW.event, s.now
    FROM (SELECT d.now, max(d.value, d.least) AS delay FROM gc_delays d WHERE d.event = NEW.event) AS s
    WHERE true
    ON CONFLICT (digest) DO UPDATE SET
        review_after = max(review_after, excluded.review_after), blob_id = excluded.blob_id,
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

-- As before, but for the numbers in the queue.

CREATE TRIGGER blobs_leave_database_trigger AFTER UPDATE ON blobs WHEN OLD.small = 1 AND NEW.small = 0
BEGIN
    DELETE FROM small_blobs WHERE blob_id = OLD.id;
END;

CREATE TRIGGER gc_track_blob_uploads_again_trigger AFTER UPDATE ON blobs
BEGIN
    INSERT INTO gc_enqueue_blob (digest, blob_id, event) VALUES (NEW.digest, NEW.id, 'blob_upload');
END;

CREATE TRIGGER gc_track_blob_uploads_trigger AFTER INSERT ON blobs
BEGIN
    INSERT INTO gc_enqueue_blob (digest, blob_id, event) VALUES (NEW.digest, NEW.id, 'blob_upload');
END;

CREATE TRIGGER gc_track_configuration_blobs_trigger AFTER INSERT ON manifests
WHEN NEW.configuration_blob_id IS NOT NULL
BEGIN
    INSERT INTO gc_blobs_configurations (blob_id, manifest_id, top_level_namespace_id, repository_id)
    VALUES (NEW.configuration_blob_id, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (blob_id, manifest_id) DO NOTHING;
END;

CREATE TRIGGER gc_track_deleted_blobs_trigger AFTER DELETE ON blobs WHEN OLD.small = 0
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'blob_delete');
END;

CREATE TRIGGER gc_track_deleted_layers_trigger AFTER DELETE ON layers
BEGIN
    DELETE FROM gc_blobs_layers WHERE blob_id = OLD.blob_id AND layer_id = OLD.id;
    INSERT INTO gc_enqueue_blob (digest, blob_id, event, together)
    VALUES ((SELECT b.digest FROM blobs b WHERE b.id = OLD.blob_id), OLD.blob_id, 'layer_delete', OLD.manifest_id);
END;

CREATE TRIGGER gc_track_deleted_manifests_trigger AFTER DELETE ON manifests
WHEN OLD.configuration_blob_id IS NOT NULL
BEGIN
    DELETE FROM gc_blobs_configurations WHERE blob_id = OLD.configuration_blob_id AND manifest_id = OLD.id;
    INSERT INTO gc_enqueue_blob (digest, blob_id, event, together)
    VALUES ((SELECT b.digest FROM blobs b WHERE b.id = OLD.configuration_blob_id), OLD.configuration_blob_id, 'manifest_delete', OLD.id);
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

CREATE TRIGGER gc_track_moved_blobs_trigger AFTER UPDATE ON blobs WHEN OLD.path <> NEW.path AND OLD.small = 0
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'blob_delete');
END;
