CREATE TABLE missing_content (
    -- What manifests of cached repositories refer to and their repositories do not have yet. A pull brings it, and the
    -- transaction that stores it deletes the row.
    repository_id INTEGER NOT NULL, -- deleted with its manifest
    digest        TEXT NOT NULL,
    manifest_id   INTEGER NOT NULL CONSTRAINT missing_content_manifest_id_fkey REFERENCES manifests (id) ON DELETE CASCADE,
    media_type_id INTEGER NOT NULL, -- of a layer; 0: it is a manifest
    size          INTEGER NOT NULL, -- as the manifest says
    PRIMARY KEY (repository_id, digest, manifest_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX missing_content_manifest_id_idx ON missing_content (manifest_id);
