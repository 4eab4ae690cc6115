-- What clients deleted from the registry, for as long as it can be brought
-- back: docs/spec/registry-tracking.md, "Undelete".

CREATE TABLE deleted_tags (
    repository_id bigint NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    name          text COLLATE "C" NOT NULL,
    digest        text COLLATE "C" NOT NULL,
    event         text COLLATE "C" NOT NULL,
    deleted_at    bigint NOT NULL,
    PRIMARY KEY (repository_id, name, deleted_at, digest)
);
COMMENT ON TABLE deleted_tags IS 'Tags that were deleted, or given to another manifest. What they pointed at may be gone; then nothing comes of it. Forgotten by age.';
COMMENT ON COLUMN deleted_tags.digest IS 'of the manifest';
COMMENT ON COLUMN deleted_tags.event IS 'tag_delete, tag_switch or manifest_delete';
COMMENT ON COLUMN deleted_tags.deleted_at IS 'Unix milliseconds';

CREATE INDEX deleted_tags_deleted_at_idx ON deleted_tags (deleted_at);
CREATE INDEX deleted_tags_repository_id_digest_idx ON deleted_tags (repository_id, digest);

CREATE TABLE deleted_manifests (
    repository_id bigint NOT NULL REFERENCES repositories (id) ON DELETE CASCADE,
    digest        text COLLATE "C" NOT NULL,
    media_type_id bigint NOT NULL REFERENCES media_types (id),
    payload       bytea NOT NULL,
    deleted_at    bigint NOT NULL,
    PRIMARY KEY (repository_id, digest)
);
COMMENT ON TABLE deleted_manifests IS 'Manifests that were deleted by their digest. Their blobs have a review of their own, and until then they can be pushed again from here. Forgotten by age.';
COMMENT ON COLUMN deleted_manifests.deleted_at IS 'Unix milliseconds';

CREATE INDEX deleted_manifests_deleted_at_idx ON deleted_manifests (deleted_at);

CREATE FUNCTION tags_deleted_remember() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO deleted_tags (repository_id, name, digest, event, deleted_at)
    SELECT r.repository_id, r.name, m.digest, 'tag_delete', gc_now()
    FROM removed r CROSS JOIN LATERAL (SELECT f.digest FROM manifests f WHERE f.id = r.manifest_id OFFSET 0) AS m
    ON CONFLICT (repository_id, name, deleted_at, digest) DO NOTHING;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tags_deleted_remember IS 'A tag that was deleted can be brought back. One that goes with its manifest is remembered by who deletes that.';
CREATE TRIGGER tags_deleted_remember_trigger AFTER DELETE ON tags
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION tags_deleted_remember();

CREATE FUNCTION tags_switched_remember() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO deleted_tags (repository_id, name, digest, event, deleted_at)
    SELECT OLD.repository_id, OLD.name, m.digest, 'tag_switch', gc_now() FROM manifests m WHERE m.id = OLD.manifest_id
    ON CONFLICT (repository_id, name, deleted_at, digest) DO NOTHING;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tags_switched_remember IS 'A tag that was given to another manifest can be given back.';
CREATE TRIGGER tags_switched_remember_trigger AFTER UPDATE OF manifest_id ON tags
    FOR EACH ROW WHEN (OLD.manifest_id <> NEW.manifest_id) EXECUTE FUNCTION tags_switched_remember();
