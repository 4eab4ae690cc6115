-- Removed objects, for as long as a client can restore them.

CREATE TABLE archive (
    -- The objects that were removed, until they expire. The body stays where
    -- it was, in changes: compaction keeps it while a row here points at it.
    id            INTEGER PRIMARY KEY, -- the revision of the removal
    uid           TEXT NOT NULL,
    kind          TEXT NOT NULL,
    namespace     TEXT NOT NULL,       -- empty: cluster-scoped; a Namespace is in itself
    name          TEXT NOT NULL,
    body_revision INTEGER,             -- changes.revision of the last body; null: not kept (Secrets)
    removed_at    INTEGER NOT NULL,    -- Unix milliseconds
    actor         TEXT NOT NULL,       -- who asked for the deletion
    cascade       TEXT NOT NULL,       -- uid of the object whose deletion was the cause, or an id of a request's own
    size          INTEGER NOT NULL,    -- bytes of the body
    restored_as   TEXT,                -- the uid of the object that was last restored from this row
    requester     TEXT,                -- the client whose delete began the cascade; null: the actor itself
    request_id    TEXT                 -- the Audit-Id of that delete; null: it was not a request
) STRICT;

CREATE INDEX archive_uid_idx ON archive (uid);
CREATE INDEX archive_namespace_removed_at_idx ON archive (namespace, removed_at);
CREATE INDEX archive_roots_idx ON archive (id) WHERE cascade = uid;

CREATE INDEX archive_cascade_idx
    -- An object that was removed alone is its own cascade, and is found by its uid.
    ON archive (cascade) WHERE cascade <> uid;
CREATE INDEX archive_name_idx ON archive (name, namespace);
CREATE INDEX archive_restored_as_idx ON archive (restored_as) WHERE restored_as IS NOT NULL;

CREATE TABLE archive_kinds (
    -- The names of custom kinds whose definition was removed, for as long as
    -- objects of the kind are in the archive.
    storage     TEXT PRIMARY KEY,    -- archive.kind, and the name of the definition
    definition  TEXT NOT NULL,       -- uid of the definition
    removed_at  INTEGER NOT NULL,    -- Unix milliseconds
    api_group   TEXT NOT NULL,
    api_version TEXT NOT NULL,       -- the one that bodies are stored in
    kind        TEXT NOT NULL,
    plural      TEXT NOT NULL,
    singular    TEXT NOT NULL,
    short_names TEXT NOT NULL,       -- JSON
    namespaced  INTEGER NOT NULL     -- boolean
) STRICT;

CREATE VIEW archive_definitions AS
    -- The archived definitions with the names that they declare.
    SELECT a.id, a.name, a.uid, a.removed_at,
        b.body ->> '$.spec.group' AS api_group,
        coalesce((SELECT v.value ->> '$.name' FROM json_each(b.body, '$.spec.versions') v WHERE v.value ->> '$.storage'), 'v1') AS api_version,
        b.body ->> '$.spec.names.kind' AS kind,
        b.body ->> '$.spec.names.plural' AS plural,
        coalesce(b.body ->> '$.spec.names.singular', lower(b.body ->> '$.spec.names.kind')) AS singular,
        coalesce(b.body -> '$.spec.names.shortNames', '[]') AS short_names,
        b.body ->> '$.spec.scope' = 'Namespaced' AS namespaced
    FROM archive a JOIN (SELECT revision, CAST(body AS TEXT) AS body FROM changes) b ON b.revision = a.body_revision
    WHERE a.kind = 'customresourcedefinitions.apiextensions.k8s.io';

CREATE TRIGGER archive_kinds_remember_trigger AFTER INSERT ON archive
-- The archive keeps the names of the kind of an archived definition.
WHEN NEW.kind = 'customresourcedefinitions.apiextensions.k8s.io'
BEGIN
    INSERT OR REPLACE INTO archive_kinds (storage, definition, removed_at, api_group, api_version, kind, plural, singular, short_names, namespaced)
    SELECT d.name, d.uid, d.removed_at, d.api_group, d.api_version, d.kind, d.plural, d.singular, d.short_names, d.namespaced
    FROM archive_definitions d WHERE d.id = NEW.id AND d.api_group IS NOT NULL AND d.kind IS NOT NULL AND d.plural IS NOT NULL;
END;

CREATE TABLE dropped_references (
    -- Owner references that restored objects came back without, because the
    -- owner was gone. A restore of the owner gives them back.
    owner_uid     TEXT NOT NULL, -- a restore of the object that had this uid brings the owner back
    dependent_uid TEXT NOT NULL, -- the restored object
    reference     TEXT NOT NULL, -- the OwnerReference as it was archived, JSON
    known         TEXT NOT NULL, -- uids of the owners that restores gave the dependent, JSON; any other was added by a client
    PRIMARY KEY (owner_uid, dependent_uid)
) STRICT;

CREATE INDEX dropped_references_dependent_uid_idx ON dropped_references (dependent_uid);
