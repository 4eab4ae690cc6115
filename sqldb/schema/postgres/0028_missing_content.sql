CREATE TABLE missing_content (
    repository_id bigint NOT NULL,
    digest        text COLLATE "C" NOT NULL,
    manifest_id   bigint NOT NULL,
    media_type_id bigint NOT NULL,
    size          bigint NOT NULL,
    CONSTRAINT missing_content_pkey PRIMARY KEY (repository_id, digest, manifest_id),
    CONSTRAINT missing_content_manifest_id_fkey FOREIGN KEY (manifest_id) REFERENCES manifests (id) ON DELETE CASCADE
);
COMMENT ON TABLE missing_content IS 'What manifests of cached repositories refer to and their repositories do not have yet. A pull brings it, and the transaction that stores it deletes the row.';
COMMENT ON COLUMN missing_content.repository_id IS 'deleted with its manifest';
COMMENT ON COLUMN missing_content.media_type_id IS 'of a layer; 0: it is a manifest';
COMMENT ON COLUMN missing_content.size IS 'as the manifest says';
CREATE INDEX missing_content_manifest_id_idx ON missing_content (manifest_id);
