-- Removed objects, for as long as a client can restore them.

CREATE TABLE archive (
    id            bigint PRIMARY KEY,
    uid           text COLLATE "C" NOT NULL,
    kind          text COLLATE "C" NOT NULL,
    namespace     text COLLATE "C" NOT NULL,
    name          text COLLATE "C" NOT NULL,
    body_revision bigint,
    removed_at    bigint NOT NULL,
    actor         text COLLATE "C" NOT NULL,
    cascade       text COLLATE "C" NOT NULL,
    size          bigint NOT NULL,
    restored_as   text COLLATE "C",
    requester     text COLLATE "C",
    request_id    text COLLATE "C"
);
COMMENT ON TABLE archive IS 'The objects that were removed, until they expire. The body stays where it was, in changes: compaction keeps it while a row here points at it.';
COMMENT ON COLUMN archive.id IS 'the revision of the removal';
COMMENT ON COLUMN archive.namespace IS 'empty: cluster-scoped; a Namespace is in itself';
COMMENT ON COLUMN archive.body_revision IS 'changes.revision of the last body; null: not kept (Secrets)';
COMMENT ON COLUMN archive.removed_at IS 'Unix milliseconds';
COMMENT ON COLUMN archive.actor IS 'who asked for the deletion';
COMMENT ON COLUMN archive.cascade IS 'uid of the object whose deletion was the cause, or an id of a request''s own';
COMMENT ON COLUMN archive.size IS 'bytes of the body';
COMMENT ON COLUMN archive.restored_as IS 'the uid of the object that was last restored from this row';
COMMENT ON COLUMN archive.requester IS 'the client whose delete began the cascade; null: the actor itself';
COMMENT ON COLUMN archive.request_id IS 'the Audit-Id of that delete; null: it was not a request';

CREATE INDEX archive_uid_idx ON archive (uid);
CREATE INDEX archive_namespace_removed_at_idx ON archive (namespace, removed_at);
CREATE INDEX archive_roots_idx ON archive (id) WHERE cascade = uid;

CREATE INDEX archive_cascade_idx ON archive (cascade) WHERE cascade <> uid;
COMMENT ON INDEX archive_cascade_idx IS 'An object that was removed alone is its own cascade, and is found by its uid.';
CREATE INDEX archive_name_idx ON archive (name, namespace, id);
CREATE INDEX archive_restored_as_idx ON archive (restored_as) WHERE restored_as IS NOT NULL;

CREATE TABLE archive_kinds (
    storage     text COLLATE "C" PRIMARY KEY,
    definition  text COLLATE "C" NOT NULL,
    removed_at  bigint NOT NULL,
    api_group   text COLLATE "C" NOT NULL,
    api_version text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    plural      text COLLATE "C" NOT NULL,
    singular    text COLLATE "C" NOT NULL,
    short_names text COLLATE "C" NOT NULL,
    namespaced  boolean NOT NULL
);
COMMENT ON TABLE archive_kinds IS 'The names of custom kinds whose definition was removed, for as long as objects of the kind are in the archive.';
COMMENT ON COLUMN archive_kinds.storage IS 'archive.kind, and the name of the definition';
COMMENT ON COLUMN archive_kinds.definition IS 'uid of the definition';
COMMENT ON COLUMN archive_kinds.removed_at IS 'Unix milliseconds';
COMMENT ON COLUMN archive_kinds.api_version IS 'the one that bodies are stored in';
COMMENT ON COLUMN archive_kinds.short_names IS 'JSON';

CREATE VIEW archive_definitions AS
    SELECT a.id, a.name, a.uid, a.removed_at,
        b.spec ->> 'group' AS api_group,
        coalesce((SELECT v ->> 'name' FROM json_array_elements(b.spec -> 'versions') v WHERE (v ->> 'storage')::boolean), 'v1') AS api_version,
        b.spec -> 'names' ->> 'kind' AS kind,
        b.spec -> 'names' ->> 'plural' AS plural,
        coalesce(b.spec -> 'names' ->> 'singular', lower(b.spec -> 'names' ->> 'kind')) AS singular,
        coalesce(b.spec -> 'names' ->> 'shortNames', '[]') AS short_names,
        b.spec ->> 'scope' = 'Namespaced' AS namespaced
    FROM archive a
    CROSS JOIN LATERAL (SELECT convert_from(c.body, 'UTF8')::json -> 'spec' AS spec FROM changes c WHERE c.revision = a.body_revision) b
    WHERE a.kind = 'customresourcedefinitions.apiextensions.k8s.io';
COMMENT ON VIEW archive_definitions IS 'The archived definitions with the names that they declare.';

CREATE FUNCTION archive_kinds_remember() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO archive_kinds AS k (storage, definition, removed_at, api_group, api_version, kind, plural, singular, short_names, namespaced)
    SELECT d.name, d.uid, d.removed_at, d.api_group, d.api_version, d.kind, d.plural, d.singular, d.short_names, d.namespaced
    FROM archive_definitions d WHERE d.id = NEW.id AND d.api_group IS NOT NULL AND d.kind IS NOT NULL AND d.plural IS NOT NULL
    ON CONFLICT (storage) DO UPDATE SET
        definition = excluded.definition, removed_at = excluded.removed_at, api_group = excluded.api_group,
        api_version = excluded.api_version, kind = excluded.kind, plural = excluded.plural, singular = excluded.singular,
        short_names = excluded.short_names, namespaced = excluded.namespaced;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION archive_kinds_remember IS 'The archive keeps the names of the kind of an archived definition.';
CREATE TRIGGER archive_kinds_remember_trigger AFTER INSERT ON archive
    FOR EACH ROW WHEN (NEW.kind = 'customresourcedefinitions.apiextensions.k8s.io')
    EXECUTE FUNCTION archive_kinds_remember();

CREATE TABLE dropped_references (
    owner_uid     text COLLATE "C" NOT NULL,
    dependent_uid text COLLATE "C" NOT NULL,
    reference     text COLLATE "C" NOT NULL,
    known         text COLLATE "C" NOT NULL,
    PRIMARY KEY (owner_uid, dependent_uid)
);
COMMENT ON TABLE dropped_references IS 'Owner references that restored objects came back without, because the owner was gone. A restore of the owner gives them back.';
COMMENT ON COLUMN dropped_references.owner_uid IS 'a restore of the object that had this uid brings the owner back';
COMMENT ON COLUMN dropped_references.dependent_uid IS 'the restored object';
COMMENT ON COLUMN dropped_references.reference IS 'the OwnerReference as it was archived, JSON';
COMMENT ON COLUMN dropped_references.known IS 'uids of the owners that restores gave the dependent, JSON; any other was added by a client';

CREATE INDEX dropped_references_dependent_uid_idx ON dropped_references (dependent_uid);
