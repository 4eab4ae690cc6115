-- What clients deleted from the registry, for as long as it can be brought
-- back: docs/spec/registry-tracking.md, "Undelete".

CREATE TABLE deleted_tags (
    -- Tags that were deleted, or given to another manifest. What they pointed at
    -- may be gone; then nothing comes of it. Forgotten by age.
    repository_id INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    name          TEXT NOT NULL,
    digest        TEXT NOT NULL,    -- of the manifest
    event         TEXT NOT NULL,    -- tag_delete, tag_switch or manifest_delete
    deleted_at    INTEGER NOT NULL, -- Unix milliseconds
    PRIMARY KEY (repository_id, name, deleted_at, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX deleted_tags_deleted_at_idx ON deleted_tags (deleted_at);
CREATE INDEX deleted_tags_repository_id_digest_idx ON deleted_tags (repository_id, digest);

CREATE TABLE deleted_manifests (
    -- Manifests that were deleted by their digest. Their blobs have a review of
    -- their own, and until then they can be pushed again from here. Forgotten by
    -- age.
    repository_id INTEGER NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    digest        TEXT NOT NULL,
    media_type_id INTEGER NOT NULL REFERENCES media_types (id),
    payload       BLOB NOT NULL,
    deleted_at    INTEGER NOT NULL, -- Unix milliseconds
    PRIMARY KEY (repository_id, digest)
) STRICT;

CREATE INDEX deleted_manifests_deleted_at_idx ON deleted_manifests (deleted_at);

-- A tag that goes with its manifest is remembered by who deletes that, and one
-- that goes with its repository by nobody.
CREATE TRIGGER tags_deleted_remember_trigger AFTER DELETE ON tags
BEGIN
    INSERT INTO deleted_tags (repository_id, name, digest, event, deleted_at)
    SELECT OLD.repository_id, OLD.name, m.digest, 'tag_delete', CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM manifests m JOIN repositories r ON r.id = OLD.repository_id WHERE m.id = OLD.manifest_id
    ON CONFLICT (repository_id, name, deleted_at, digest) DO NOTHING;
END;

CREATE TRIGGER tags_switched_remember_trigger AFTER UPDATE OF manifest_id ON tags
WHEN OLD.manifest_id <> NEW.manifest_id
BEGIN
    INSERT INTO deleted_tags (repository_id, name, digest, event, deleted_at)
    SELECT OLD.repository_id, OLD.name, m.digest, 'tag_switch', CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM manifests m JOIN repositories r ON r.id = OLD.repository_id WHERE m.id = OLD.manifest_id
    ON CONFLICT (repository_id, name, deleted_at, digest) DO NOTHING;
END;
