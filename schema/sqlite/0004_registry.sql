-- The registry's metadata. The bytes of blobs are in a blob store, at paths
-- that are recorded here; the bytes of manifests are here.
--
-- Whoever deletes a row of blobs or blob_uploads leaves its path to the
-- collector: see 0005. Paths are never used twice.

CREATE TABLE top_level_namespaces (
    -- The first component of the paths of repositories. Goes when the API
    -- namespace does.
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL -- Unix milliseconds
) STRICT;

CREATE TABLE repositories (
    -- What can be pushed to and pulled from. Everything below goes with it.
    id                     INTEGER PRIMARY KEY AUTOINCREMENT,
    top_level_namespace_id INTEGER NOT NULL REFERENCES top_level_namespaces (id) ON DELETE CASCADE,
    path                   TEXT NOT NULL UNIQUE, -- the whole name: shop/web
    created_at             INTEGER NOT NULL      -- Unix milliseconds
) STRICT;

CREATE INDEX repositories_top_level_namespace_id_idx ON repositories (top_level_namespace_id);

CREATE TABLE media_types (
    -- Written once each and never removed: there are few.
    id         INTEGER PRIMARY KEY,
    media_type TEXT NOT NULL UNIQUE
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
    -- is written after the bytes have been synced, and goes before they do.
    digest        TEXT PRIMARY KEY,        -- sha256:… or sha512:…
    path          TEXT NOT NULL UNIQUE,    -- in the blob store; one for each upload
    size          INTEGER NOT NULL,
    media_type_id INTEGER NOT NULL REFERENCES media_types (id),
    created_at    INTEGER NOT NULL         -- Unix milliseconds
) STRICT, WITHOUT ROWID;

CREATE TABLE repository_blobs (
    -- Which blobs a repository may hand out: pushed or mounted there.
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    blob_digest            TEXT NOT NULL REFERENCES blobs (digest) ON DELETE CASCADE,
    created_at             INTEGER NOT NULL, -- Unix milliseconds
    PRIMARY KEY (repository_id, blob_digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX repository_blobs_blob_digest_idx ON repository_blobs (blob_digest);

CREATE TABLE blob_uploads (
    -- Uploads that have begun. The row is written before the first byte, and
    -- goes when the upload becomes a blob, or is cancelled or abandoned; its
    -- path is then in blobs, or left to the collector.
    id            TEXT PRIMARY KEY,        -- random; the client's handle
    repository_id INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    path          TEXT NOT NULL UNIQUE,    -- in the blob store
    algorithm     TEXT NOT NULL,           -- of hash_state: sha256 or sha512
    size          INTEGER NOT NULL,        -- bytes that were received and synced
    hash_state    BLOB,                    -- of the first size bytes; null: of none
    created_at    INTEGER NOT NULL,        -- Unix milliseconds
    updated_at    INTEGER NOT NULL,        -- Unix milliseconds; the last sign of life
    claim_token   TEXT,                    -- of the request that writes; null: none does
    claim_until   INTEGER                  -- Unix milliseconds
) STRICT;

CREATE INDEX blob_uploads_repository_id_idx ON blob_uploads (repository_id);
CREATE INDEX blob_uploads_updated_at_idx ON blob_uploads (updated_at);

CREATE TABLE manifests (
    -- Manifests and manifest lists, each in its repository.
    id                          INTEGER PRIMARY KEY AUTOINCREMENT,
    top_level_namespace_id      INTEGER NOT NULL,
    repository_id               INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    digest                      TEXT NOT NULL,
    media_type_id               INTEGER NOT NULL REFERENCES media_types (id),
    artifact_type               TEXT,     -- what referrers are filtered by; null: none
    subject_digest              TEXT,     -- need not exist; null: none
    configuration_media_type_id INTEGER REFERENCES media_types (id),
    configuration_blob_digest   TEXT REFERENCES blobs (digest), -- null: none
    total_size                  INTEGER NOT NULL, -- of configuration and layers
    payload                     BLOB NOT NULL,    -- byte for byte as it came
    created_at                  INTEGER NOT NULL, -- Unix milliseconds
    UNIQUE (repository_id, digest)
) STRICT;

CREATE INDEX manifests_configuration_blob_digest_idx ON manifests (configuration_blob_digest)
    WHERE configuration_blob_digest IS NOT NULL;
CREATE INDEX manifests_repository_id_subject_digest_idx ON manifests (repository_id, subject_digest, digest)
    WHERE subject_digest IS NOT NULL;

CREATE TABLE manifest_references (
    -- Which manifests a list holds.
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    parent_id              INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    -- Deferred: a repository goes with all its manifests, in any order.
    child_id               INTEGER NOT NULL REFERENCES manifests (id) DEFERRABLE INITIALLY DEFERRED,
    PRIMARY KEY (parent_id, child_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX manifest_references_child_id_idx ON manifest_references (child_id);
CREATE INDEX manifest_references_repository_id_idx ON manifest_references (repository_id);

CREATE TABLE layers (
    -- Which blobs a manifest holds, its configuration apart. A layer that
    -- must not be distributed is here only if its blob is.
    id                     INTEGER PRIMARY KEY,
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    manifest_id            INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    digest                 TEXT NOT NULL REFERENCES blobs (digest),
    media_type_id          INTEGER NOT NULL REFERENCES media_types (id),
    size                   INTEGER NOT NULL,
    UNIQUE (manifest_id, digest)
) STRICT;

CREATE INDEX layers_digest_idx ON layers (digest);
CREATE INDEX layers_repository_id_idx ON layers (repository_id);

CREATE TABLE tags (
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    name                   TEXT NOT NULL,
    manifest_id            INTEGER NOT NULL REFERENCES manifests (id) ON DELETE CASCADE,
    created_at             INTEGER NOT NULL, -- Unix milliseconds
    updated_at             INTEGER NOT NULL, -- Unix milliseconds; when it was last pushed
    PRIMARY KEY (repository_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_manifest_id_idx ON tags (manifest_id);
