-- The registry's metadata. The bytes of blobs are in a blob store, at paths that
-- are recorded here; the bytes of manifests and of small blobs are here. A path
-- is never used twice: when a row of blobs or blob_uploads is deleted, a trigger
-- queues its path for the unlinker (0005).

CREATE TABLE top_level_namespaces (
    -- The first component of the paths of repositories. Deleted with the API
    -- namespace.
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL CONSTRAINT top_level_namespaces_name_key UNIQUE,
    created_at INTEGER NOT NULL,          -- Unix milliseconds
    deleting   INTEGER NOT NULL DEFAULT 0 -- boolean: the API namespace is Terminating
) STRICT;

CREATE TABLE repositories (
    -- What clients push to and pull from. All content is deleted with it.
    id                     INTEGER PRIMARY KEY AUTOINCREMENT,
    top_level_namespace_id INTEGER NOT NULL
        CONSTRAINT repositories_top_level_namespace_id_fkey REFERENCES top_level_namespaces (id) ON DELETE CASCADE,
    path                   TEXT NOT NULL CONSTRAINT repositories_path_key UNIQUE, -- the whole name: shop/web
    created_at             INTEGER NOT NULL,           -- Unix milliseconds
    gc_hold                INTEGER NOT NULL DEFAULT 0, -- boolean: nothing of this repository is collected
    gc_delay               INTEGER CONSTRAINT repositories_gc_delay_check CHECK (gc_delay >= 0), -- milliseconds from an event to the review of its manifest; null: the default of the event
    object_uid             TEXT,                       -- of its Repository; null: not made yet
    deleting               INTEGER NOT NULL DEFAULT 0, -- boolean: pushes are refused
    removed_at             INTEGER                     -- Unix milliseconds; null: the Repository exists. The path of a removed one is @ and the uid, which no request can ask for
) STRICT;

CREATE INDEX repositories_top_level_namespace_id_idx ON repositories (top_level_namespace_id);
CREATE UNIQUE INDEX repositories_object_uid_idx ON repositories (object_uid) WHERE object_uid IS NOT NULL;

CREATE TABLE media_types (
    -- Written once each and never removed: there are few.
    id         INTEGER PRIMARY KEY,
    media_type TEXT NOT NULL CONSTRAINT media_types_media_type_key UNIQUE
) STRICT;

INSERT INTO media_types (id, media_type) VALUES
    (1, 'application/octet-stream'),
    (2, 'application/vnd.oci.image.manifest.v1+json'),
    (3, 'application/vnd.oci.image.index.v1+json'),
    (4, 'application/vnd.docker.distribution.manifest.v2+json'),
    (5, 'application/vnd.docker.distribution.manifest.list.v2+json'),
    (6, 'application/vnd.oci.image.config.v1+json'),
    (7, 'application/vnd.oci.image.layer.v1.tar'),
    (8, 'application/vnd.oci.image.layer.v1.tar+gzip'),
    (9, 'application/vnd.oci.image.layer.v1.tar+zstd'),
    (10, 'application/vnd.docker.container.image.v1+json'),
    (11, 'application/vnd.docker.image.rootfs.diff.tar.gzip'),
    (12, 'application/vnd.oci.empty.v1+json');

CREATE TABLE blobs (
    -- Content that was uploaded and verified, once for all repositories. A row
    -- is written after the bytes have been synced, and deleted before they are.
    id            INTEGER PRIMARY KEY,     -- in upload order, so what was pushed together lies together: docs/decisions/0011
    digest        TEXT NOT NULL CONSTRAINT blobs_digest_key UNIQUE, -- sha256:… or sha512:…
    path          TEXT NOT NULL CONSTRAINT blobs_path_key UNIQUE, -- in the blob store; one for each upload
    size          INTEGER NOT NULL,
    media_type_id INTEGER NOT NULL CONSTRAINT blobs_media_type_id_fkey REFERENCES media_types (id),
    created_at    INTEGER NOT NULL,           -- Unix milliseconds
    small         INTEGER NOT NULL DEFAULT 0, -- boolean: the bytes are in small_blobs
    damaged       INTEGER NOT NULL DEFAULT 0  -- boolean: found by exeunt registry verify --repair; not served, and replaced by the next upload
) STRICT;

CREATE TABLE small_blobs (
    -- The bytes of small blobs. One transaction writes row and bytes, so they
    -- need no file, no sync of their own and no unlinking.
    blob_id INTEGER PRIMARY KEY CONSTRAINT small_blobs_blob_id_fkey REFERENCES blobs (id) ON DELETE CASCADE,
    content BLOB NOT NULL
) STRICT;

CREATE TRIGGER blobs_leave_database_trigger AFTER UPDATE ON blobs WHEN OLD.small = 1 AND NEW.small = 0
-- A small blob was damaged, and its next upload went to the blob store.
BEGIN
    DELETE FROM small_blobs WHERE blob_id = OLD.id;
END;

CREATE TABLE repository_blobs (
    -- Which blobs a repository may serve: pushed or mounted there.
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL CONSTRAINT repository_blobs_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    blob_id                INTEGER NOT NULL CONSTRAINT repository_blobs_blob_id_fkey REFERENCES blobs (id) ON DELETE CASCADE,
    created_at             INTEGER NOT NULL, -- Unix milliseconds
    PRIMARY KEY (repository_id, blob_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX repository_blobs_blob_id_idx ON repository_blobs (blob_id);

CREATE TABLE blob_uploads (
    -- Uploads that have begun. The row is written before the first byte, and
    -- deleted when the upload becomes a blob, or is cancelled or abandoned. Its
    -- path is then in blobs, or in the unlink queue.
    id            TEXT PRIMARY KEY,        -- random; the client's handle
    repository_id INTEGER NOT NULL CONSTRAINT blob_uploads_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    path          TEXT NOT NULL CONSTRAINT blob_uploads_path_key UNIQUE, -- in the blob store
    algorithm     TEXT NOT NULL,           -- of hash_state: sha256 or sha512
    size          INTEGER NOT NULL,        -- bytes that were received and synced
    hash_state    BLOB,                    -- of the first size bytes; null: of none
    created_at    INTEGER NOT NULL,        -- Unix milliseconds
    updated_at    INTEGER NOT NULL,        -- Unix milliseconds; the last sign of life
    claim_token   TEXT,                    -- of the request that writes; null: none does
    claim_until   INTEGER,                 -- Unix milliseconds
    store_state   BLOB                     -- what the blob store needs to continue after the first size bytes, in any process: ids and tags of parts in S3; null: the path is enough
) STRICT;

CREATE INDEX blob_uploads_repository_id_idx ON blob_uploads (repository_id);
CREATE INDEX blob_uploads_updated_at_idx ON blob_uploads (updated_at);

CREATE TABLE manifests (
    -- Manifests and manifest lists, each in its repository.
    id                          INTEGER PRIMARY KEY AUTOINCREMENT,
    top_level_namespace_id      INTEGER NOT NULL,
    repository_id               INTEGER NOT NULL CONSTRAINT manifests_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    digest                      TEXT NOT NULL,
    media_type_id               INTEGER NOT NULL CONSTRAINT manifests_media_type_id_fkey REFERENCES media_types (id),
    artifact_type               TEXT,     -- what referrers are filtered by; null: none
    subject_digest              TEXT,     -- need not exist; null: none
    configuration_media_type_id INTEGER CONSTRAINT manifests_configuration_media_type_id_fkey REFERENCES media_types (id),
    configuration_blob_id       INTEGER,  -- null: none; refers to blobs by gc_blobs_configurations
    total_size                  INTEGER NOT NULL, -- of configuration and layers
    payload                     BLOB NOT NULL,    -- byte for byte as the client sent it
    created_at                  INTEGER NOT NULL, -- Unix milliseconds
    CONSTRAINT manifests_repository_id_digest_key UNIQUE (repository_id, digest)
) STRICT;

CREATE INDEX manifests_repository_id_subject_digest_idx ON manifests (repository_id, subject_digest, digest)
    WHERE subject_digest IS NOT NULL;

CREATE TABLE manifest_references (
    -- Which manifests a list holds.
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL CONSTRAINT manifest_references_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    parent_id              INTEGER NOT NULL CONSTRAINT manifest_references_parent_id_fkey REFERENCES manifests (id) ON DELETE CASCADE,
    -- Deferred: a repository is deleted with all its manifests, in any order.
    child_id               INTEGER NOT NULL CONSTRAINT manifest_references_child_id_fkey REFERENCES manifests (id) DEFERRABLE INITIALLY DEFERRED,
    PRIMARY KEY (parent_id, child_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX manifest_references_child_id_idx ON manifest_references (child_id);
CREATE INDEX manifest_references_repository_id_idx ON manifest_references (repository_id);

CREATE TABLE layers (
    -- Which blobs a manifest holds, except its configuration. A layer that
    -- must not be distributed is here only if its blob is.
    id                     INTEGER PRIMARY KEY,
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL, -- deleted with its manifest
    manifest_id            INTEGER NOT NULL CONSTRAINT layers_manifest_id_fkey REFERENCES manifests (id) ON DELETE CASCADE,
    blob_id                INTEGER NOT NULL, -- refers to blobs by gc_blobs_layers
    media_type_id          INTEGER NOT NULL CONSTRAINT layers_media_type_id_fkey REFERENCES media_types (id),
    size                   INTEGER NOT NULL,
    CONSTRAINT layers_manifest_id_blob_id_key UNIQUE (manifest_id, blob_id)
) STRICT;

CREATE TABLE tags (
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL CONSTRAINT tags_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    name                   TEXT NOT NULL,
    manifest_id            INTEGER NOT NULL CONSTRAINT tags_manifest_id_fkey REFERENCES manifests (id) ON DELETE CASCADE,
    created_at             INTEGER NOT NULL, -- Unix milliseconds
    updated_at             INTEGER NOT NULL, -- Unix milliseconds; when it was last pushed
    PRIMARY KEY (repository_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_manifest_id_idx ON tags (manifest_id);

CREATE TABLE data_id (
    -- The id that the database shares with its blob store, so that a server
    -- refuses the blob store of another database. One row, made at the first
    -- start with a registry.
    one    INTEGER PRIMARY KEY CONSTRAINT data_id_one_check CHECK (one = 1),
    id     TEXT NOT NULL,
    stored INTEGER NOT NULL DEFAULT 0 -- boolean: the blob store has the id; before that it may have none yet
) STRICT;
