-- What the registry's collector needs: which blobs are in use, what may no longer
-- be in use, and the paths whose bytes are to be removed. Tables, triggers and
-- events have the names of the online garbage collection of GitLab's registry; a
-- comment says what that does not have. Then: how a repository follows its
-- object, and what undelete remembers.

CREATE TABLE gc_review_after_defaults (
    -- The delay from an event to the review of its subject. existence_check is
    -- the minimum for blobs and manifests: what a client was told exists stays
    -- for that long.
    event TEXT PRIMARY KEY,
    value INTEGER NOT NULL CONSTRAINT gc_review_after_defaults_value_check CHECK (value >= 0) -- milliseconds; a random part is added: up to a tenth, at most a minute
) STRICT, WITHOUT ROWID;

INSERT INTO gc_review_after_defaults (event, value) VALUES
    ('blob_upload', 86400000), ('manifest_upload', 86400000), ('manifest_delete', 86400000),
    ('layer_delete', 86400000), ('manifest_list_delete', 86400000), ('tag_delete', 86400000),
    ('tag_switch', 86400000), ('subject_delete', 86400000), ('existence_check', 3600000),
    ('blob_delete', 60000), ('upload_delete', 60000);

CREATE TABLE gc_settings (
    -- Switches that the triggers read. signatures: the tags of cosign are deleted
    -- with their image.
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL -- boolean
) STRICT, WITHOUT ROWID;

INSERT INTO gc_settings (name, value) VALUES ('signatures', 1);

CREATE TABLE gc_blobs_configurations (
    -- Which manifests, of any repository, use a blob as their configuration.
    -- Written by triggers. Its foreign key keeps a blob that is in use.
    blob_id                INTEGER NOT NULL CONSTRAINT gc_blobs_configurations_blob_id_fkey REFERENCES blobs (id),
    manifest_id            INTEGER NOT NULL,
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL,
    PRIMARY KEY (blob_id, manifest_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE gc_blobs_layers (
    -- Which layers, of any repository, are a blob. Written by triggers. Its
    -- foreign key keeps a blob that is in use.
    blob_id                INTEGER NOT NULL CONSTRAINT gc_blobs_layers_blob_id_fkey REFERENCES blobs (id),
    layer_id               INTEGER NOT NULL,
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL,
    PRIMARY KEY (blob_id, layer_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE gc_blob_review_queue (
    -- Blobs that may be unused: every unused blob is here. See package review
    -- for the columns.
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
    -- Manifests that may be unused: every manifest without tag, list and subject
    -- is here. See package review for the columns.
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
    -- Paths of the blob store that no row names any more: the unlinker removes
    -- their bytes. See package review for the columns.
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

CREATE TABLE gc_given_back (
    -- How many bytes of the blob store the unlinkers removed on each day.
    day   INTEGER PRIMARY KEY, -- days since 1970, UTC
    bytes INTEGER NOT NULL
) STRICT;

CREATE TRIGGER gc_review_after_defaults_keep BEFORE DELETE ON gc_review_after_defaults
-- Without its row an event would not be tracked.
BEGIN
    SELECT raise(ABORT, 'an event needs its row: set its value');
END;

CREATE TRIGGER gc_review_after_defaults_keep_event BEFORE UPDATE OF event ON gc_review_after_defaults
WHEN OLD.event <> NEW.event
BEGIN
    SELECT raise(ABORT, 'an event needs its row: set its value');
END;

-- Where PostgreSQL has functions, SQLite has views with INSTEAD OF triggers.

CREATE VIEW gc_delays AS
SELECT e.event, e.value, p.value AS least, CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now
FROM gc_review_after_defaults e JOIN gc_review_after_defaults p ON p.event = 'existence_check';

CREATE VIEW gc_enqueue_blob AS SELECT '' AS digest, '' AS event, 0 AS together;

CREATE TRIGGER gc_enqueue_blob_trigger INSTEAD OF INSERT ON gc_enqueue_blob
-- Puts a blob under review; a review that has begun is repeated. The later time
-- wins: each event, and each existence check, says "not before". Blobs with the
-- same value of together get the same random delay: the blobs of a deleted
-- manifest lie together, so in a large registry their pages are read and written
-- once, not once for each.
BEGIN
    INSERT INTO gc_blob_review_queue (digest, review_after, review_count, event, created_at)
    SELECT NEW.digest, s.now + s.delay + abs(coalesce(NEW.together * 2654435761, random()) % (1 + min(s.delay / 10, 60000))), 0, NEW.event, s.now
    FROM (SELECT d.now, max(d.value, d.least) AS delay FROM gc_delays d WHERE d.event = NEW.event) AS s
    WHERE true
    ON CONFLICT (digest) DO UPDATE SET
        review_after = max(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE VIEW gc_enqueue_manifest AS SELECT 0 AS id, '' AS event;

CREATE TRIGGER gc_enqueue_manifest_trigger INSTEAD OF INSERT ON gc_enqueue_manifest
-- Puts a manifest under review, if it exists.
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

CREATE VIEW gc_enqueue_unlink AS SELECT '' AS path, 0 AS size, '' AS event;

CREATE TRIGGER gc_enqueue_unlink_trigger INSTEAD OF INSERT ON gc_enqueue_unlink
-- Queues a path for the unlinker, with a delay: requests that have just read the
-- path may still open it.
BEGIN
    INSERT INTO gc_unlink_queue (path, size, review_after, review_count, event, created_at)
    SELECT NEW.path, NEW.size, d.now + d.value + abs(random() % (1 + min(d.value / 10, 60000))), 0, NEW.event, d.now
    FROM gc_delays d WHERE d.event = NEW.event
    ON CONFLICT (path) DO UPDATE SET event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER gc_track_blob_uploads_again_trigger AFTER UPDATE ON blobs
-- As gc_track_blob_uploads_trigger.
BEGIN
    INSERT INTO gc_enqueue_blob (digest, event) VALUES (NEW.digest, 'blob_upload');
END;

CREATE TRIGGER gc_track_blob_uploads_trigger AFTER INSERT ON blobs
-- An uploaded blob is reviewed, the first time and each time again: its manifest
-- may never come.
BEGIN
    INSERT INTO gc_enqueue_blob (digest, event) VALUES (NEW.digest, 'blob_upload');
END;

CREATE TRIGGER gc_track_deleted_blobs_trigger AFTER DELETE ON blobs WHEN OLD.small = 0
-- Not in GitLab's registry: the bytes of a deleted blob are removed later. Those
-- of a small blob are deleted with its row.
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'blob_delete');
END;

CREATE TRIGGER gc_track_moved_blobs_trigger AFTER UPDATE ON blobs WHEN OLD.path <> NEW.path AND OLD.small = 0
-- Not in GitLab's registry: the old bytes of a blob that got new ones are removed.
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'blob_delete');
END;

CREATE TRIGGER gc_track_deleted_uploads_trigger AFTER DELETE ON blob_uploads
-- Not in GitLab's registry: the bytes of an upload that did not become a blob are
-- removed. It was cancelled or abandoned, or the blob existed already.
WHEN NOT EXISTS (SELECT 1 FROM blobs b WHERE b.path = OLD.path)
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'upload_delete');
END;

CREATE TRIGGER gc_track_configuration_blobs_trigger AFTER INSERT ON manifests
-- A manifest uses its configuration, if it has one.
WHEN NEW.configuration_blob_id IS NOT NULL
BEGIN
    INSERT INTO gc_blobs_configurations (blob_id, manifest_id, top_level_namespace_id, repository_id)
    VALUES (NEW.configuration_blob_id, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (blob_id, manifest_id) DO NOTHING;
END;

CREATE TRIGGER gc_track_layer_blobs_trigger AFTER INSERT ON layers
-- A manifest uses its layers.
BEGIN
    INSERT INTO gc_blobs_layers (blob_id, layer_id, top_level_namespace_id, repository_id)
    VALUES (NEW.blob_id, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (blob_id, layer_id) DO NOTHING;
END;

CREATE TRIGGER gc_track_manifest_uploads_trigger AFTER INSERT ON manifests
-- An uploaded manifest is reviewed, the first time and each time again: its tag,
-- list or subject may never come.
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event) VALUES (NEW.id, 'manifest_upload');
END;

CREATE TRIGGER gc_track_manifest_uploads_again_trigger AFTER UPDATE ON manifests
-- As gc_track_manifest_uploads_trigger.
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event) VALUES (NEW.id, 'manifest_upload');
END;

CREATE TRIGGER gc_track_deleted_manifests_trigger AFTER DELETE ON manifests
-- The configuration of a deleted manifest is reviewed.
WHEN OLD.configuration_blob_id IS NOT NULL
BEGIN
    DELETE FROM gc_blobs_configurations WHERE blob_id = OLD.configuration_blob_id AND manifest_id = OLD.id;
    INSERT INTO gc_enqueue_blob (digest, event, together)
    VALUES ((SELECT b.digest FROM blobs b WHERE b.id = OLD.configuration_blob_id), 'manifest_delete', OLD.id);
END;

CREATE TRIGGER gc_track_deleted_subjects_trigger AFTER DELETE ON manifests
-- Not in GitLab's registry: the referrers of a deleted manifest are reviewed, and
-- the tags that cosign made for it are deleted.
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event)
    SELECT m.id, 'subject_delete' FROM manifests m
    WHERE m.repository_id = OLD.repository_id AND m.subject_digest = OLD.digest;
    DELETE FROM tags
    WHERE repository_id = OLD.repository_id
        AND name IN (replace(OLD.digest, ':', '-') || '.att', replace(OLD.digest, ':', '-') || '.sbom', replace(OLD.digest, ':', '-') || '.sig')
        AND EXISTS (SELECT 1 FROM gc_settings s WHERE s.name = 'signatures' AND s.value);
END;

CREATE TRIGGER gc_track_deleted_layers_trigger AFTER DELETE ON layers
-- The layers of a deleted manifest are reviewed.
BEGIN
    DELETE FROM gc_blobs_layers WHERE blob_id = OLD.blob_id AND layer_id = OLD.id;
    INSERT INTO gc_enqueue_blob (digest, event, together)
    VALUES ((SELECT b.digest FROM blobs b WHERE b.id = OLD.blob_id), 'layer_delete', OLD.manifest_id);
END;

CREATE TRIGGER gc_track_deleted_manifest_lists_trigger AFTER DELETE ON manifest_references
-- The manifests of a deleted list are reviewed.
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event) VALUES (OLD.child_id, 'manifest_list_delete');
END;

CREATE TRIGGER gc_track_deleted_tags_trigger AFTER DELETE ON tags
-- A manifest that lost a tag is reviewed, if it still exists.
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event) VALUES (OLD.manifest_id, 'tag_delete');
END;

CREATE TRIGGER gc_track_switched_tags_trigger AFTER UPDATE OF manifest_id ON tags
-- A manifest whose tag now points at another manifest is reviewed.
WHEN OLD.manifest_id <> NEW.manifest_id
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event) VALUES (OLD.manifest_id, 'tag_switch');
END;

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
    -- Repositories that were removed: their content is deleted when they can no
    -- longer be restored. See package review for the columns.
    uid          TEXT PRIMARY KEY, -- of the Repository
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
) STRICT;

CREATE INDEX gc_repository_review_queue_review_after_idx ON gc_repository_review_queue (review_after);

CREATE TRIGGER repositories_follow_created_trigger AFTER INSERT ON changes
-- A Repository has a row. A restored one gets its old row, with the content.
WHEN NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.type = 1
BEGIN
    INSERT INTO top_level_namespaces (name, created_at) VALUES (NEW.namespace, unixepoch() * 1000)
    ON CONFLICT (name) DO NOTHING;
    UPDATE repositories SET
        path = CAST(NEW.body AS TEXT) ->> '$.spec.path', object_uid = NEW.uid, deleting = 0, removed_at = NULL
    WHERE path = (SELECT '@' || a.uid FROM archive a WHERE a.restored_as = NEW.uid LIMIT 1)
        AND NOT EXISTS (SELECT 1 FROM repositories r WHERE r.path = CAST(NEW.body AS TEXT) ->> '$.spec.path');
    INSERT INTO repositories (top_level_namespace_id, path, created_at, object_uid, gc_hold, gc_delay)
    SELECT n.id, CAST(NEW.body AS TEXT) ->> '$.spec.path', unixepoch() * 1000, NEW.uid,
        coalesce(CAST(NEW.body AS TEXT) ->> '$.spec.hold', 0), (CAST(NEW.body AS TEXT) ->> '$.spec.reviewAfterSeconds') * 1000
    FROM top_level_namespaces n WHERE n.name = NEW.namespace
    ON CONFLICT (path) DO UPDATE SET
        object_uid = excluded.object_uid, gc_hold = excluded.gc_hold, gc_delay = excluded.gc_delay;
END;

CREATE TRIGGER repositories_follow_updated_trigger AFTER INSERT ON changes
-- The row takes over what the spec says about collection.
WHEN NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.type = 2
BEGIN
    UPDATE repositories SET
        gc_hold = coalesce(CAST(NEW.body AS TEXT) ->> '$.spec.hold', 0),
        gc_delay = (CAST(NEW.body AS TEXT) ->> '$.spec.reviewAfterSeconds') * 1000
    WHERE object_uid = NEW.uid;
END;

CREATE TRIGGER repositories_follow_archive_trigger AFTER DELETE ON archive
-- A Repository that can no longer be restored is reviewed.
WHEN OLD.kind = 'repositories.registry.exeunt.dev'
BEGIN
    UPDATE gc_repository_review_queue SET review_after = 0, event = 'archive_delete', claim_token = NULL, claim_until = NULL
    WHERE uid = OLD.uid;
END;

CREATE TRIGGER repositories_follow_removed_trigger AFTER DELETE ON objects
-- Clients cannot reach the content of a removed Repository. A hold stops
-- collection, not this deletion. While the archive has the object, the review
-- comes after an hour, in case the archive's own trigger was missed.
WHEN OLD.kind = 'repositories.registry.exeunt.dev'
BEGIN
    INSERT INTO gc_repository_review_queue (uid, review_after, review_count, event, created_at)
    SELECT OLD.uid,
        CASE WHEN EXISTS (SELECT 1 FROM archive a WHERE a.uid = OLD.uid) THEN (unixepoch() + 3600) * 1000 ELSE 0 END,
        0, 'repository_delete', unixepoch() * 1000
    FROM repositories r WHERE r.object_uid = OLD.uid
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
    UPDATE repositories SET path = '@' || OLD.uid, deleting = 1, removed_at = unixepoch() * 1000, gc_hold = 0
    WHERE object_uid = OLD.uid;
END;

CREATE TRIGGER top_level_namespaces_follow_created_trigger AFTER INSERT ON objects
WHEN NEW.kind = 'namespaces'
BEGIN
    UPDATE top_level_namespaces SET deleting = 0 WHERE name = NEW.name AND deleting;
END;

CREATE TRIGGER repositories_follow_deleting_trigger AFTER UPDATE OF deletion_time ON objects
-- Pushes to a Repository that is being deleted are refused.
WHEN NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL
BEGIN
    UPDATE repositories SET deleting = 1 WHERE object_uid = NEW.uid;
END;

CREATE TRIGGER top_level_namespaces_follow_deleting_trigger AFTER UPDATE OF deletion_time ON objects
-- Pushes to a namespace that is being deleted are refused.
WHEN NEW.kind = 'namespaces' AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL
BEGIN
    UPDATE top_level_namespaces SET deleting = 1 WHERE name = NEW.name;
END;

-- What clients deleted from the registry, for as long as it can be restored:
-- docs/spec/registry-tracking.md, "Undelete".

CREATE TABLE deleted_tags (
    -- Tags that were deleted, or point at another manifest now. The manifest may
    -- be gone; then they cannot be restored. Deleted by age.
    repository_id INTEGER NOT NULL CONSTRAINT deleted_tags_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    name          TEXT NOT NULL,
    digest        TEXT NOT NULL,    -- of the manifest
    event         TEXT NOT NULL,    -- tag_delete, tag_switch or manifest_delete
    deleted_at    INTEGER NOT NULL, -- Unix milliseconds
    PRIMARY KEY (repository_id, name, deleted_at, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX deleted_tags_deleted_at_idx ON deleted_tags (deleted_at);
CREATE INDEX deleted_tags_repository_id_digest_idx ON deleted_tags (repository_id, digest);

CREATE TABLE deleted_manifests (
    -- Manifests that were deleted by their digest. Until the reviews of their
    -- blobs are due, undelete can push them again from here. Deleted by age.
    repository_id INTEGER NOT NULL CONSTRAINT deleted_manifests_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    digest        TEXT NOT NULL,
    media_type_id INTEGER NOT NULL CONSTRAINT deleted_manifests_media_type_id_fkey REFERENCES media_types (id),
    payload       BLOB NOT NULL,
    deleted_at    INTEGER NOT NULL, -- Unix milliseconds
    PRIMARY KEY (repository_id, digest)
) STRICT;

CREATE INDEX deleted_manifests_deleted_at_idx ON deleted_manifests (deleted_at);

CREATE TRIGGER tags_deleted_remember_trigger AFTER DELETE ON tags
-- A tag that was deleted can be restored. For a tag that is deleted with its
-- manifest, the statement that deletes the manifest writes the row; a tag that is
-- deleted with its repository gets none.
BEGIN
    INSERT INTO deleted_tags (repository_id, name, digest, event, deleted_at)
    SELECT OLD.repository_id, OLD.name, m.digest, 'tag_delete', CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM manifests m JOIN repositories r ON r.id = OLD.repository_id WHERE m.id = OLD.manifest_id
    ON CONFLICT (repository_id, name, deleted_at, digest) DO NOTHING;
END;

CREATE TRIGGER tags_switched_remember_trigger AFTER UPDATE OF manifest_id ON tags
-- A tag that points at another manifest now can be pointed back.
WHEN OLD.manifest_id <> NEW.manifest_id
BEGIN
    INSERT INTO deleted_tags (repository_id, name, digest, event, deleted_at)
    SELECT OLD.repository_id, OLD.name, m.digest, 'tag_switch', CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM manifests m JOIN repositories r ON r.id = OLD.repository_id WHERE m.id = OLD.manifest_id
    ON CONFLICT (repository_id, name, deleted_at, digest) DO NOTHING;
END;
