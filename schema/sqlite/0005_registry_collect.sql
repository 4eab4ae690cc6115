-- What the registry's collector needs: what is in use, what may not be any
-- more, and the paths whose bytes are to go. The tables, triggers and events
-- have the names of the online garbage collection of GitLab's registry; what
-- that does not have is said where it comes.

-- gc_hold: nothing of this repository is collected. gc_delay: milliseconds from
-- an event to the review of its manifest, in place of the default of the event.
ALTER TABLE repositories ADD COLUMN gc_hold INTEGER NOT NULL DEFAULT 0; -- boolean
ALTER TABLE repositories ADD COLUMN gc_delay INTEGER CHECK (gc_delay >= 0);

CREATE TABLE gc_review_after_defaults (
    -- How long after an event its subject is reviewed. existence_check is the
    -- least there is for blobs and manifests: what a client was told exists
    -- stays for so long.
    event TEXT PRIMARY KEY,
    value INTEGER NOT NULL CHECK (value >= 0) -- milliseconds; a tenth of it, a minute at most, is added by chance
) STRICT, WITHOUT ROWID;

INSERT INTO gc_review_after_defaults (event, value) VALUES
    ('blob_upload', 86400000), ('manifest_upload', 86400000), ('manifest_delete', 86400000),
    ('layer_delete', 86400000), ('manifest_list_delete', 86400000), ('tag_delete', 86400000),
    ('tag_switch', 86400000), ('subject_delete', 86400000), ('existence_check', 3600000),
    ('blob_delete', 60000), ('upload_delete', 60000);

CREATE TABLE gc_settings (
    -- Switches that the triggers read. signatures: the tags of cosign go with
    -- their image.
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL -- boolean
) STRICT, WITHOUT ROWID;

INSERT INTO gc_settings (name, value) VALUES ('signatures', 1);

CREATE TABLE gc_blobs_configurations (
    -- Which manifests, of any repository, use a blob as their configuration.
    -- Kept by triggers.
    digest                 TEXT NOT NULL,
    manifest_id            INTEGER NOT NULL,
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL,
    PRIMARY KEY (digest, manifest_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE gc_blobs_layers (
    -- Which layers, of any repository, are a blob. Kept by triggers.
    digest                 TEXT NOT NULL,
    layer_id               INTEGER NOT NULL,
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL,
    PRIMARY KEY (digest, layer_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE gc_blob_review_queue (
    -- Blobs that may be unused: every blob that nothing uses is here. See
    -- package review for the columns.
    digest       TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
) STRICT;

CREATE INDEX gc_blob_review_queue_review_after_idx ON gc_blob_review_queue (review_after);

CREATE TABLE gc_manifest_review_queue (
    -- Manifests that nothing may keep: every manifest that nothing keeps is
    -- here. See package review for the columns.
    manifest               TEXT PRIMARY KEY, -- repository id, @, digest; the ids beside it are for people
    top_level_namespace_id INTEGER NOT NULL DEFAULT 0,
    repository_id          INTEGER NOT NULL DEFAULT 0,
    manifest_id            INTEGER NOT NULL DEFAULT 0,
    review_after           INTEGER NOT NULL, -- Unix milliseconds
    review_count           INTEGER NOT NULL,
    event                  TEXT NOT NULL,
    created_at             INTEGER NOT NULL, -- Unix milliseconds
    last_error             TEXT,
    claim_token            TEXT,
    claim_until            INTEGER           -- Unix milliseconds
) STRICT;

CREATE INDEX gc_manifest_review_queue_review_after_idx ON gc_manifest_review_queue (review_after);

CREATE TABLE gc_unlink_queue (
    -- Paths of the blob store that no row names any more: their bytes are to
    -- be removed. See package review for the columns.
    path         TEXT PRIMARY KEY,
    size         INTEGER NOT NULL DEFAULT 0, -- bytes, as far as known
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
) STRICT;

CREATE INDEX gc_unlink_queue_review_after_idx ON gc_unlink_queue (review_after);

-- Without its row an event would not be tracked.
CREATE TRIGGER gc_review_after_defaults_keep BEFORE DELETE ON gc_review_after_defaults
BEGIN
    SELECT raise(ABORT, 'an event needs its row: set its value');
END;
CREATE TRIGGER gc_review_after_defaults_keep_event BEFORE UPDATE OF event ON gc_review_after_defaults
WHEN OLD.event <> NEW.event
BEGIN
    SELECT raise(ABORT, 'an event needs its row: set its value');
END;

-- Where PostgreSQL has functions, here are views that are inserted into.

CREATE VIEW gc_delays AS
SELECT e.event, e.value, p.value AS least, CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now
FROM gc_review_after_defaults e JOIN gc_review_after_defaults p ON p.event = 'existence_check';

-- gc_enqueue_blob puts a blob under review; a review that has begun is
-- repeated. The later time wins: each event, and each existence check, says
-- "not before".
CREATE VIEW gc_enqueue_blob AS SELECT '' AS digest, '' AS event;
CREATE TRIGGER gc_enqueue_blob_trigger INSTEAD OF INSERT ON gc_enqueue_blob
BEGIN
    INSERT INTO gc_blob_review_queue (digest, review_after, review_count, event, created_at)
    SELECT NEW.digest, s.now + s.delay + abs(random() % (1 + min(s.delay / 10, 60000))), 0, NEW.event, s.now
    FROM (SELECT d.now, max(d.value, d.least) AS delay FROM gc_delays d WHERE d.event = NEW.event) AS s
    WHERE true
    ON CONFLICT (digest) DO UPDATE SET
        review_after = max(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

-- gc_enqueue_manifest puts a manifest under review, if it exists.
CREATE VIEW gc_enqueue_manifest AS SELECT 0 AS id, '' AS event;
CREATE TRIGGER gc_enqueue_manifest_trigger INSTEAD OF INSERT ON gc_enqueue_manifest
BEGIN
    INSERT INTO gc_manifest_review_queue
        (manifest, top_level_namespace_id, repository_id, manifest_id, review_after, review_count, event, created_at)
    SELECT s.repository_id || '@' || s.digest, s.top_level_namespace_id, s.repository_id, NEW.id,
        s.now + s.delay + abs(random() % (1 + min(s.delay / 10, 60000))), 0, NEW.event, s.now
    FROM (
        SELECT m.digest, m.top_level_namespace_id, m.repository_id, d.now, max(coalesce(r.gc_delay, d.value), d.least) AS delay
        FROM manifests m JOIN repositories r ON r.id = m.repository_id JOIN gc_delays d ON d.event = NEW.event
        WHERE m.id = NEW.id) AS s
    WHERE true
    ON CONFLICT (manifest) DO UPDATE SET
        review_after = max(review_after, excluded.review_after), manifest_id = excluded.manifest_id,
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

-- gc_enqueue_unlink has bytes removed, a little later: requests that have just
-- read their path may still open them.
CREATE VIEW gc_enqueue_unlink AS SELECT '' AS path, 0 AS size, '' AS event;
CREATE TRIGGER gc_enqueue_unlink_trigger INSTEAD OF INSERT ON gc_enqueue_unlink
BEGIN
    INSERT INTO gc_unlink_queue (path, size, review_after, review_count, event, created_at)
    SELECT NEW.path, NEW.size, d.now + d.value + abs(random() % (1 + min(d.value / 10, 60000))), 0, NEW.event, d.now
    FROM gc_delays d WHERE d.event = NEW.event
    ON CONFLICT (path) DO UPDATE SET event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

-- A blob that was uploaded, for the first time or again, is reviewed: its
-- manifest may never come.
CREATE TRIGGER gc_track_blob_uploads_trigger AFTER INSERT ON blobs
BEGIN
    INSERT INTO gc_enqueue_blob (digest, event) VALUES (NEW.digest, 'blob_upload');
END;
CREATE TRIGGER gc_track_blob_uploads_again_trigger AFTER UPDATE ON blobs
BEGIN
    INSERT INTO gc_enqueue_blob (digest, event) VALUES (NEW.digest, 'blob_upload');
END;

-- Not in spec 2: the bytes of a blob whose row is gone are to go.
CREATE TRIGGER gc_track_deleted_blobs_trigger AFTER DELETE ON blobs
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'blob_delete');
END;

-- Not in spec 2: bytes that a blob has left behind for others are to go.
CREATE TRIGGER gc_track_moved_blobs_trigger AFTER UPDATE ON blobs WHEN OLD.path <> NEW.path
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'blob_delete');
END;

-- Not in spec 2: the bytes of an upload that did not become a blob are to go:
-- it was cancelled or abandoned, or the blob was there already.
CREATE TRIGGER gc_track_deleted_uploads_trigger AFTER DELETE ON blob_uploads
WHEN NOT EXISTS (SELECT 1 FROM blobs b WHERE b.path = OLD.path)
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'upload_delete');
END;

-- A manifest uses its configuration, if it has one.
CREATE TRIGGER gc_track_configuration_blobs_trigger AFTER INSERT ON manifests
WHEN NEW.configuration_blob_digest IS NOT NULL
BEGIN
    INSERT INTO gc_blobs_configurations (digest, manifest_id, top_level_namespace_id, repository_id)
    VALUES (NEW.configuration_blob_digest, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (digest, manifest_id) DO NOTHING;
END;

-- A manifest uses its layers.
CREATE TRIGGER gc_track_layer_blobs_trigger AFTER INSERT ON layers
BEGIN
    INSERT INTO gc_blobs_layers (digest, layer_id, top_level_namespace_id, repository_id)
    VALUES (NEW.digest, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (digest, layer_id) DO NOTHING;
END;

-- A manifest that was uploaded, for the first time or again, is reviewed: its
-- tag, list or subject may never come.
CREATE TRIGGER gc_track_manifest_uploads_trigger AFTER INSERT ON manifests
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event) VALUES (NEW.id, 'manifest_upload');
END;
CREATE TRIGGER gc_track_manifest_uploads_again_trigger AFTER UPDATE ON manifests
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event) VALUES (NEW.id, 'manifest_upload');
END;

-- The configuration of a manifest that is gone is reviewed.
CREATE TRIGGER gc_track_deleted_manifests_trigger AFTER DELETE ON manifests
WHEN OLD.configuration_blob_digest IS NOT NULL
BEGIN
    DELETE FROM gc_blobs_configurations WHERE digest = OLD.configuration_blob_digest AND manifest_id = OLD.id;
    INSERT INTO gc_enqueue_blob (digest, event) VALUES (OLD.configuration_blob_digest, 'manifest_delete');
END;

-- Not in spec 2: what refers to a manifest that is gone is reviewed, and the
-- tags that cosign made for it go.
CREATE TRIGGER gc_track_deleted_subjects_trigger AFTER DELETE ON manifests
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event)
    SELECT m.id, 'subject_delete' FROM manifests m
    WHERE m.repository_id = OLD.repository_id AND m.subject_digest = OLD.digest;
    DELETE FROM tags
    WHERE repository_id = OLD.repository_id
        AND name IN (replace(OLD.digest, ':', '-') || '.att', replace(OLD.digest, ':', '-') || '.sbom', replace(OLD.digest, ':', '-') || '.sig')
        AND EXISTS (SELECT 1 FROM gc_settings s WHERE s.name = 'signatures' AND s.value);
END;

-- The layers of a manifest that is gone are reviewed.
CREATE TRIGGER gc_track_deleted_layers_trigger AFTER DELETE ON layers
BEGIN
    DELETE FROM gc_blobs_layers WHERE digest = OLD.digest AND layer_id = OLD.id;
    INSERT INTO gc_enqueue_blob (digest, event) VALUES (OLD.digest, 'layer_delete');
END;

-- The manifests of a list that is gone are reviewed.
CREATE TRIGGER gc_track_deleted_manifest_lists_trigger AFTER DELETE ON manifest_references
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event) VALUES (OLD.child_id, 'manifest_list_delete');
END;

-- A manifest that has lost a tag is reviewed, unless it is gone itself.
CREATE TRIGGER gc_track_deleted_tags_trigger AFTER DELETE ON tags
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event) VALUES (OLD.manifest_id, 'tag_delete');
END;

-- A manifest whose tag was given to another is reviewed.
CREATE TRIGGER gc_track_switched_tags_trigger AFTER UPDATE OF manifest_id ON tags
WHEN OLD.manifest_id <> NEW.manifest_id
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event) VALUES (OLD.manifest_id, 'tag_switch');
END;
