-- The current schema. Written by `go generate ./schema`: do not edit.

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
, body_replaced INTEGER /* the revision that replaced the body; null: the removal. Once it is compacted, only the archive needs the body */, confirmer TEXT /* as objects.deletion_confirmer */) STRICT;

CREATE INDEX archive_cascade_idx
    -- An object that was removed alone is its own cascade, and is found by its uid.
    ON archive (cascade) WHERE cascade <> uid;

CREATE INDEX archive_name_idx ON archive (name, namespace);

CREATE INDEX archive_namespace_removed_at_idx ON archive (namespace, removed_at);

CREATE INDEX archive_restored_as_idx ON archive (restored_as) WHERE restored_as IS NOT NULL;

CREATE INDEX archive_roots_idx
    -- The objects whose deletion began a cascade, the newest first.
    ON archive (id) WHERE substr(cascade, 1, length(uid)) = uid;

CREATE INDEX archive_uid_idx ON archive (uid);

CREATE TRIGGER archive_kinds_remember_trigger AFTER INSERT ON archive
-- The archive keeps the names of the kind of an archived definition.
WHEN NEW.kind = 'customresourcedefinitions.apiextensions.k8s.io'
BEGIN
    INSERT OR REPLACE INTO archive_kinds (storage, definition, removed_at, api_group, api_version, kind, plural, singular, short_names, namespaced)
    SELECT d.name, d.uid, d.removed_at, d.api_group, d.api_version, d.kind, d.plural, d.singular, d.short_names, d.namespaced
    FROM archive_definitions d WHERE d.id = NEW.id AND d.api_group IS NOT NULL AND d.kind IS NOT NULL AND d.plural IS NOT NULL;
END;

CREATE TRIGGER repositories_follow_archive_trigger AFTER DELETE ON archive
-- A Repository that can no longer be restored is reviewed.
WHEN OLD.kind = 'repositories.registry.exeunt.dev'
BEGIN
    UPDATE gc_repository_review_queue SET review_after = 0, event = 'archive_delete', claim_token = NULL, claim_until = NULL
    WHERE uid = OLD.uid;
END;

CREATE TRIGGER archive_cascades_follow_archive_trigger AFTER DELETE ON archive
-- A row that leaves is not counted any more. The last one takes its cascade with it.
BEGIN
    UPDATE archive_cascades SET objects = objects - 1, bytes = bytes - OLD.size
    WHERE id = OLD.cascade AND OLD.id <= (SELECT revision FROM archive_counted);
    DELETE FROM archive_cascades
    WHERE id = OLD.cascade AND objects = 0 AND leaving IS NULL
        AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.cascade = OLD.cascade AND a.cascade <> a.uid)
        AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.uid = OLD.cascade AND a.cascade = a.uid);
END;

CREATE TABLE archive_cascades (
    -- The cascades that have rows in archive, with the sums of the rows up to
    -- archive_counted. A removal writes nothing here: expiry counts the new rows.
    id          TEXT PRIMARY KEY,            -- archive.cascade
    namespace   TEXT NOT NULL DEFAULT '',    -- of its root, whose share of the archive it uses; empty: cluster-scoped; a Namespace is in itself
    objects     INTEGER NOT NULL DEFAULT 0,
    bytes       INTEGER NOT NULL DEFAULT 0,
    removed_at  INTEGER NOT NULL DEFAULT 0,  -- of the last row; Unix milliseconds
    purged      INTEGER NOT NULL DEFAULT 0,  -- how many of its objects a client purged from the archive
    restored_at INTEGER,                     -- when an object of it was last restored; Unix milliseconds; null: none was
    leaving     INTEGER                      -- its rows up to this revision are leaving: they are not listed, cannot be restored, and are deleted in steps; null: none are
) STRICT, WITHOUT ROWID;

CREATE INDEX archive_cascades_leaving_idx ON archive_cascades (id) WHERE leaving IS NOT NULL;

CREATE INDEX archive_cascades_namespace_idx
    -- What may leave, the oldest first, and the bytes of each namespace. SQLite reads leaving too: without it the index does not cover the sums.
    ON archive_cascades (namespace, removed_at, id, bytes, leaving) WHERE leaving IS NULL;

CREATE TABLE archive_counted (
    -- How far archive_cascades is: one row.
    one      INTEGER PRIMARY KEY CONSTRAINT archive_counted_one_check CHECK (one = 1),
    revision INTEGER NOT NULL -- the rows of archive up to this id are counted
) STRICT;

INSERT INTO archive_counted VALUES (1, 0);

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

CREATE TABLE archive_spans (
    -- The other namespaces that objects of a cascade were in.
    cascade   TEXT NOT NULL CONSTRAINT archive_spans_cascade_fkey REFERENCES archive_cascades (id) ON DELETE CASCADE,
    namespace TEXT NOT NULL,
    PRIMARY KEY (cascade, namespace)
) STRICT, WITHOUT ROWID;

CREATE VIEW backup_holds AS
    -- The backups that need the bytes of the registry to stay.
    SELECT id FROM backups WHERE hold_until > CAST(unixepoch('subsec') * 1000 AS INTEGER);

CREATE TABLE backups (
    -- Backups of this database: those that run, the last that ended, and the one that
    -- the database was restored from.
    id          TEXT PRIMARY KEY,
    target      TEXT NOT NULL,    -- for people
    began_at    INTEGER NOT NULL, -- Unix milliseconds, as all times here
    hold_until  INTEGER NOT NULL, -- no bytes are unlinked before this time; the backup extends it while it runs
    ended_at    INTEGER,          -- null: it runs, or was interrupted
    restored_at INTEGER           -- null: the database was not restored from it
, progress TEXT NOT NULL DEFAULT '' /* how far it is while it runs, as JSON; renewed with the hold */) STRICT;

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

CREATE TRIGGER gc_track_deleted_uploads_trigger AFTER DELETE ON blob_uploads
-- Not in GitLab's registry: the bytes of an upload that did not become a blob are
-- removed. It was cancelled or abandoned, or the blob existed already.
WHEN NOT EXISTS (SELECT 1 FROM blobs b WHERE b.path = OLD.path)
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'upload_delete');
END;

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

CREATE TRIGGER blobs_leave_database_trigger AFTER UPDATE ON blobs WHEN OLD.small = 1 AND NEW.small = 0
-- A small blob was damaged, and its next upload went to the blob store.
BEGIN
    DELETE FROM small_blobs WHERE blob_id = OLD.id;
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

CREATE TRIGGER registry_quotas_collect_trigger BEFORE DELETE ON blobs
-- The links go before the blob, while its size is known.
WHEN EXISTS (SELECT 1 FROM registry_quotas)
BEGIN
    DELETE FROM repository_blobs WHERE blob_id = OLD.id;
END;

CREATE TABLE bootstrap_tokens (
    -- A token admits one node to one project, once. Ended tokens are deleted when
    -- a later one is made in their project, and with their namespace.
    id         TEXT PRIMARY KEY,              -- public; part of the token's text
    project    TEXT NOT NULL,                 -- a namespace
    resource   TEXT NOT NULL,                 -- the provisioned resource it was made for; empty: made for a person
    hash       TEXT NOT NULL,                 -- SHA-256 of the secret part
    state      TEXT NOT NULL CONSTRAINT bootstrap_tokens_state_check CHECK (state IN ('issued', 'consumed', 'expired', 'revoked')),
    created_at INTEGER NOT NULL,              -- Unix milliseconds, as all times here
    created_by TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL DEFAULT 0,    -- when its state stopped being issued; 0: it is issued
    nonce      TEXT CONSTRAINT bootstrap_tokens_nonce_key UNIQUE, -- of the enrolment that consumed it
    node       TEXT NOT NULL DEFAULT '',      -- name of the node that it admitted
    left_at    INTEGER NOT NULL DEFAULT 0,    -- when that node left; 0: it has not
    left_how   TEXT NOT NULL DEFAULT ''       -- how it left, for people
) STRICT;

CREATE INDEX bootstrap_tokens_project_idx ON bootstrap_tokens (project, created_at, id);

CREATE INDEX bootstrap_tokens_resource_idx ON bootstrap_tokens (resource) WHERE resource <> '';

CREATE TABLE changes (
    -- The log: every change to every object, until compaction.
    revision  INTEGER PRIMARY KEY,
    object    INTEGER NOT NULL, -- objects.id, also after the object is gone
    uid       TEXT NOT NULL,
    kind      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    type      INTEGER NOT NULL CONSTRAINT changes_type_check CHECK (type IN (1, 2, 3)), -- created, updated, removed
    previous  INTEGER,          -- revision of the state before; null: created
    body      BLOB              -- null: removed; the last body is at previous
, at INTEGER, author TEXT) STRICT;

CREATE INDEX changes_kind_revision_idx ON changes (kind, revision);

CREATE INDEX changes_removed_idx
    -- The removals of a name: its versions are found from there.
    ON changes (kind, namespace, name, revision) WHERE type = 3;

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

CREATE TRIGGER repositories_quota_trigger AFTER INSERT ON changes
-- An object sets, changes or takes away a limit. A new limit begins with what there is.
WHEN NEW.kind IN ('resourcequotas', 'repositories.registry.exeunt.dev') AND NEW.type IN (1, 2)
BEGIN
    DELETE FROM registry_quotas WHERE uid = NEW.uid
        AND NOT EXISTS (SELECT 1 FROM registry_limits l WHERE l.revision = NEW.revision AND l.most IS NOT NULL);
    UPDATE registry_quotas SET most = (SELECT l.most FROM registry_limits l WHERE l.revision = NEW.revision) WHERE uid = NEW.uid;
    INSERT INTO registry_quotas (uid, name, namespace, most, bytes)
    SELECT l.uid, CASE l.kind WHEN 'resourcequotas' THEN 'ResourceQuota ' ELSE 'Repository ' END || l.name,
        CASE l.kind WHEN 'resourcequotas' THEN l.namespace END, l.most, coalesce((
            SELECT sum(b.size) FROM repositories r JOIN repository_blobs x ON x.repository_id = r.id JOIN blobs b ON b.id = x.blob_id
            WHERE r.object_uid = l.uid
                OR l.kind = 'resourcequotas' AND r.top_level_namespace_id = (SELECT n.id FROM top_level_namespaces n WHERE n.name = l.namespace)), 0)
    FROM registry_limits l
    WHERE l.revision = NEW.revision AND l.most IS NOT NULL AND NOT EXISTS (SELECT 1 FROM registry_quotas q WHERE q.uid = NEW.uid);
END;

CREATE TABLE console_sessions (
    -- Browsers that are signed in to the console, and one-time links that sign in.
    id         TEXT PRIMARY KEY,    -- SHA-256 of the secret, hex
    link       INTEGER NOT NULL,    -- boolean: a link, which is used once
    user_name  TEXT NOT NULL,
    client     TEXT NOT NULL,       -- the credential, encrypted with a key derived from the secret
    created_at INTEGER NOT NULL,    -- Unix milliseconds
    expires_at INTEGER NOT NULL     -- Unix milliseconds
) STRICT, WITHOUT ROWID;

CREATE INDEX console_sessions_expires_at_idx ON console_sessions (expires_at);

CREATE INDEX console_sessions_user_name_idx ON console_sessions (user_name, created_at);

CREATE TABLE data_id (
    -- The id that the database shares with its blob store, so that a server
    -- refuses the blob store of another database. One row, made at the first
    -- start with a registry.
    one    INTEGER PRIMARY KEY CONSTRAINT data_id_one_check CHECK (one = 1),
    id     TEXT NOT NULL,
    stored INTEGER NOT NULL DEFAULT 0 -- boolean: the blob store has the id; before that it may have none yet
) STRICT;

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

CREATE TABLE expiry_groups (
    -- The objects of which a policy of expiry keeps the newest. The writer keeps the rows, and the policy's walk writes those of
    -- the objects that were there before. Objects that are being deleted are not in them.
    policy TEXT NOT NULL,    -- uid and generation
    name   TEXT NOT NULL,    -- kind, namespace and values of labels
    object INTEGER NOT NULL, -- objects.id: the one that was created last is the newest
    PRIMARY KEY (policy, name, object)
) STRICT, WITHOUT ROWID;

CREATE TABLE expiry_policies (
    -- What the server knows about each ExpiryPolicy and ClusterExpiryPolicy besides the object.
    uid       TEXT PRIMARY KEY,
    state     TEXT NOT NULL,              -- the generation and the annotation that the row is about
    place     TEXT NOT NULL DEFAULT '',   -- the last object that was enqueued: resource, namespace and name, with spaces between
    walked_at INTEGER,                    -- when the last object was; null: not yet. Before, the policy takes nothing
    scope     INTEGER NOT NULL DEFAULT 0, -- how many objects of its resources there were
    selected  INTEGER NOT NULL DEFAULT 0, -- of them selected
    due       INTEGER NOT NULL DEFAULT 0, -- of them due
    day       INTEGER NOT NULL DEFAULT 0, -- the last day on which it took an object, in days since 1970
    today     INTEGER NOT NULL DEFAULT 0, -- how many it took on that day
    taken     INTEGER NOT NULL DEFAULT 0, -- how many it took
    taken_at  INTEGER,
    waits     INTEGER NOT NULL DEFAULT 0  -- 1: it has reached what it may take without a confirmation
, slot INTEGER NOT NULL DEFAULT 0 /* the last slot of the policy's rate in which it took an object, in slots since 1970 */, in_slot INTEGER NOT NULL DEFAULT 0 /* how many it took in that slot */) STRICT;

CREATE TABLE expiry_policy_reviews (
    -- ExpiryPolicies and ClusterExpiryPolicies that were written, by uid: see package review for the columns.
    -- The review of a new state of a policy enqueues the objects that it selects, and writes its status.
    uid          TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL,
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER,
    traceparent  TEXT
) STRICT;

CREATE INDEX expiry_policy_reviews_review_after_idx ON expiry_policy_reviews (review_after);

CREATE TABLE expiry_reviews (
    -- Objects that expire, by uid, each due at the time at which it expires: see package review for the columns.
    -- A row may outlive its object: then its review deletes it.
    uid          TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL,
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER,
    traceparent  TEXT
, announced INTEGER /* the time at which an Event said that the object expires, in Unix milliseconds */) STRICT;

CREATE INDEX expiry_reviews_review_after_idx ON expiry_reviews (review_after);

CREATE TABLE gc_admission_reviews (
    -- Objects that the collector would delete, and whose delete a webhook or a policy
    -- may judge. The event is the uid of the owner or namespace that causes it.
    uid          TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
, traceparent TEXT) STRICT;

CREATE INDEX gc_admission_reviews_review_after_idx ON gc_admission_reviews (review_after);

CREATE TRIGGER gc_admission_reviews_trace_insert AFTER INSERT ON gc_admission_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_admission_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE TRIGGER gc_admission_reviews_trace_update AFTER UPDATE OF event ON gc_admission_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_admission_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

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
, traceparent TEXT) STRICT;

CREATE INDEX gc_blob_review_queue_review_after_idx ON gc_blob_review_queue (review_after);

CREATE TRIGGER gc_blob_review_queue_trace_insert AFTER INSERT ON gc_blob_review_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_blob_review_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.digest), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE digest = NEW.digest;
END;

CREATE TRIGGER gc_blob_review_queue_trace_update AFTER UPDATE OF event ON gc_blob_review_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_blob_review_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.digest), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE digest = NEW.digest;
END;

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

CREATE TABLE gc_given_back (
    -- How many bytes of the blob store the unlinkers removed on each day.
    day   INTEGER PRIMARY KEY, -- days since 1970, UTC
    bytes INTEGER NOT NULL
) STRICT;

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
, traceparent TEXT) STRICT;

CREATE INDEX gc_manifest_review_queue_review_after_idx ON gc_manifest_review_queue (review_after);

CREATE TRIGGER gc_manifest_review_queue_trace_insert AFTER INSERT ON gc_manifest_review_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_manifest_review_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.manifest), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE manifest = NEW.manifest;
END;

CREATE TRIGGER gc_manifest_review_queue_trace_update AFTER UPDATE OF event ON gc_manifest_review_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_manifest_review_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.manifest), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE manifest = NEW.manifest;
END;

CREATE TABLE gc_object_reviews (
    -- Objects, and uids of objects that are gone, that the collector must
    -- review: see package review for the columns, package gc for the events.
    uid          TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
, traceparent TEXT) STRICT;

CREATE INDEX gc_object_reviews_review_after_idx ON gc_object_reviews (review_after);

CREATE TRIGGER gc_object_reviews_trace_insert AFTER INSERT ON gc_object_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_object_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE TRIGGER gc_object_reviews_trace_update AFTER UPDATE OF event ON gc_object_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_object_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

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
, traceparent TEXT) STRICT;

CREATE INDEX gc_repository_review_queue_review_after_idx ON gc_repository_review_queue (review_after);

CREATE TRIGGER gc_repository_review_queue_trace_insert AFTER INSERT ON gc_repository_review_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_repository_review_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE TRIGGER gc_repository_review_queue_trace_update AFTER UPDATE OF event ON gc_repository_review_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_repository_review_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE TABLE gc_review_after_defaults (
    -- The delay from an event to the review of its subject. existence_check is
    -- the minimum for blobs and manifests: what a client was told exists stays
    -- for that long.
    event TEXT PRIMARY KEY,
    value INTEGER NOT NULL CONSTRAINT gc_review_after_defaults_value_check CHECK (value >= 0) -- milliseconds; a random part is added: up to a tenth, at most a minute
) STRICT, WITHOUT ROWID;

INSERT INTO gc_review_after_defaults VALUES ('blob_delete', 60000);
INSERT INTO gc_review_after_defaults VALUES ('blob_upload', 86400000);
INSERT INTO gc_review_after_defaults VALUES ('existence_check', 3600000);
INSERT INTO gc_review_after_defaults VALUES ('layer_delete', 86400000);
INSERT INTO gc_review_after_defaults VALUES ('manifest_delete', 86400000);
INSERT INTO gc_review_after_defaults VALUES ('manifest_list_delete', 86400000);
INSERT INTO gc_review_after_defaults VALUES ('manifest_upload', 86400000);
INSERT INTO gc_review_after_defaults VALUES ('subject_delete', 86400000);
INSERT INTO gc_review_after_defaults VALUES ('tag_delete', 86400000);
INSERT INTO gc_review_after_defaults VALUES ('tag_switch', 86400000);
INSERT INTO gc_review_after_defaults VALUES ('upload_delete', 60000);

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

CREATE TABLE gc_settings (
    -- Switches that the triggers read. signatures: the tags of cosign are deleted
    -- with their image.
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL -- boolean
) STRICT, WITHOUT ROWID;

INSERT INTO gc_settings VALUES ('signatures', 1);

CREATE TABLE gc_state (
    -- The collector's persisted switch: one row.
    one    INTEGER PRIMARY KEY CONSTRAINT gc_state_one_check CHECK (one = 1),
    paused INTEGER NOT NULL, -- boolean
    reason TEXT NOT NULL
) STRICT;

INSERT INTO gc_state VALUES (1, 0, '');

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
, traceparent TEXT) STRICT;

CREATE INDEX gc_unlink_queue_review_after_idx ON gc_unlink_queue (review_after);

CREATE TRIGGER gc_unlink_queue_trace_insert AFTER INSERT ON gc_unlink_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_unlink_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.path), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE path = NEW.path;
END;

CREATE TRIGGER gc_unlink_queue_trace_update AFTER UPDATE OF event ON gc_unlink_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_unlink_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.path), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE path = NEW.path;
END;

CREATE TABLE history (
    -- Earlier versions of objects, which compaction moves here from changes. A row has several versions of one object, one after the other.
    id        INTEGER PRIMARY KEY,
    object    INTEGER NOT NULL, -- objects.id
    uid       TEXT NOT NULL,
    kind      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    first     INTEGER NOT NULL, -- revision of the oldest version
    until     INTEGER NOT NULL, -- the revision that replaced or removed the newest version
    ended_at  INTEGER NOT NULL, -- when that was; Unix milliseconds
    open      INTEGER NOT NULL, -- boolean: the next version of the object is added to this row
    versions  INTEGER NOT NULL,
    size      INTEGER NOT NULL, -- bytes of body
    body      BLOB NOT NULL     -- the versions, compressed together: store/history. Of a sealed kind: sealed
) STRICT;

CREATE UNIQUE INDEX history_key_idx ON history (kind, namespace, name, first, until);

CREATE INDEX history_namespace_idx
    -- What leaves first.
    ON history (namespace, ended_at, id);

CREATE UNIQUE INDEX history_open_idx ON history (object) WHERE open = 1;

CREATE INDEX history_uid_idx ON history (uid);

CREATE TABLE history_bounds (
    -- What the history does not have any more, and how much it has.
    kind      TEXT NOT NULL,              -- empty: all
    namespace TEXT NOT NULL,              -- '*': all
    revision  INTEGER NOT NULL,           -- states of these objects before this revision may be incomplete
    bytes     INTEGER NOT NULL DEFAULT 0, -- of the rows of history, for all kinds of one namespace
    PRIMARY KEY (kind, namespace)
) STRICT, WITHOUT ROWID;

INSERT INTO history_bounds VALUES ('', '*', 1, 0);

CREATE TABLE history_times (
    -- The last revision of each second in which something changed, up to revision.moved.
    at       INTEGER PRIMARY KEY, -- Unix seconds
    revision INTEGER NOT NULL
) STRICT;

CREATE TABLE image_uses (
    -- The images that workloads name. A row is written with the object, and stays while the archive or the history has
    -- a version that names the image.
    path      TEXT NOT NULL,    -- without the host of the registry
    reference TEXT NOT NULL,    -- a tag or a digest
    uid       TEXT NOT NULL,    -- of the object
    kind      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    left_at   INTEGER,          -- when it ended to name the image; Unix milliseconds; null: it names it
    PRIMARY KEY (path, reference, uid)
) STRICT, WITHOUT ROWID;

CREATE INDEX image_uses_left_at_idx ON image_uses (left_at) WHERE left_at IS NOT NULL;

CREATE INDEX image_uses_uid_idx ON image_uses (uid);

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

CREATE TRIGGER gc_track_layer_blobs_trigger AFTER INSERT ON layers
-- A manifest uses its layers.
BEGIN
    INSERT INTO gc_blobs_layers (blob_id, layer_id, top_level_namespace_id, repository_id)
    VALUES (NEW.blob_id, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (blob_id, layer_id) DO NOTHING;
END;

CREATE TRIGGER gc_track_deleted_layers_trigger AFTER DELETE ON layers
-- The layers of a deleted manifest are reviewed.
BEGIN
    DELETE FROM gc_blobs_layers WHERE blob_id = OLD.blob_id AND layer_id = OLD.id;
    INSERT INTO gc_enqueue_blob (digest, event, together)
    VALUES ((SELECT b.digest FROM blobs b WHERE b.id = OLD.blob_id), 'layer_delete', OLD.manifest_id);
END;

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

CREATE TRIGGER gc_track_deleted_manifest_lists_trigger AFTER DELETE ON manifest_references
-- The manifests of a deleted list are reviewed.
BEGIN
    INSERT INTO gc_enqueue_manifest (id, event) VALUES (OLD.child_id, 'manifest_list_delete');
END;

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

CREATE TRIGGER gc_track_configuration_blobs_trigger AFTER INSERT ON manifests
-- A manifest uses its configuration, if it has one.
WHEN NEW.configuration_blob_id IS NOT NULL
BEGIN
    INSERT INTO gc_blobs_configurations (blob_id, manifest_id, top_level_namespace_id, repository_id)
    VALUES (NEW.configuration_blob_id, NEW.id, NEW.top_level_namespace_id, NEW.repository_id)
    ON CONFLICT (blob_id, manifest_id) DO NOTHING;
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

CREATE TABLE media_types (
    -- Written once each and never removed: there are few.
    id         INTEGER PRIMARY KEY,
    media_type TEXT NOT NULL CONSTRAINT media_types_media_type_key UNIQUE
) STRICT;

INSERT INTO media_types VALUES (1, 'application/octet-stream');
INSERT INTO media_types VALUES (10, 'application/vnd.docker.container.image.v1+json');
INSERT INTO media_types VALUES (11, 'application/vnd.docker.image.rootfs.diff.tar.gzip');
INSERT INTO media_types VALUES (12, 'application/vnd.oci.empty.v1+json');
INSERT INTO media_types VALUES (2, 'application/vnd.oci.image.manifest.v1+json');
INSERT INTO media_types VALUES (3, 'application/vnd.oci.image.index.v1+json');
INSERT INTO media_types VALUES (4, 'application/vnd.docker.distribution.manifest.v2+json');
INSERT INTO media_types VALUES (5, 'application/vnd.docker.distribution.manifest.list.v2+json');
INSERT INTO media_types VALUES (6, 'application/vnd.oci.image.config.v1+json');
INSERT INTO media_types VALUES (7, 'application/vnd.oci.image.layer.v1.tar');
INSERT INTO media_types VALUES (8, 'application/vnd.oci.image.layer.v1.tar+gzip');
INSERT INTO media_types VALUES (9, 'application/vnd.oci.image.layer.v1.tar+zstd');

CREATE TABLE mesh_node_reviews (
    -- Nodes that are to be reviewed: see package review for the columns,
    -- package mesh for the events.
    uid          TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL,
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER
, traceparent TEXT) STRICT;

CREATE INDEX mesh_node_reviews_review_after_idx ON mesh_node_reviews (review_after);

CREATE TRIGGER mesh_node_reviews_trace_insert AFTER INSERT ON mesh_node_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE mesh_node_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE TRIGGER mesh_node_reviews_trace_update AFTER UPDATE OF event ON mesh_node_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE mesh_node_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE TABLE mesh_nodes (
    -- The nodes of the mesh. A node is registered while it has a row.
    uid         TEXT PRIMARY KEY,             -- of its object
    project     TEXT NOT NULL,
    name        TEXT NOT NULL,
    token       TEXT NOT NULL CONSTRAINT mesh_nodes_token_key UNIQUE, -- bootstrap_tokens.id; unique: a token admits one node
    credential  BLOB NOT NULL,                -- SHA-256 of its secret
    enrolled_at INTEGER NOT NULL,
    last_seen   INTEGER NOT NULL,
    ready       INTEGER NOT NULL CONSTRAINT mesh_nodes_ready_check CHECK (ready IN (0, 1)) -- as in its object's status
) STRICT;

CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;

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

CREATE TABLE object_expiries (
    -- When objects are removed without a request. A row may outlive its object:
    -- then it is deleted when it is due.
    object     INTEGER PRIMARY KEY, -- objects.id
    expires_at INTEGER NOT NULL     -- Unix milliseconds
) STRICT;

CREATE INDEX object_expiries_expires_at_idx ON object_expiries (expires_at);

CREATE TABLE objects (
    -- The objects that exist: a narrow head each. The body is in changes, at
    -- the head's revision.
    id                 INTEGER PRIMARY KEY, -- the revision of its creation
    uid                TEXT NOT NULL CONSTRAINT objects_uid_key UNIQUE,
    kind               TEXT NOT NULL,       -- storage name: deployments.apps
    namespace          TEXT NOT NULL,       -- empty: cluster-scoped
    name               TEXT NOT NULL,
    revision           INTEGER NOT NULL,
    deletion_time      INTEGER,             -- Unix seconds; null: not being deleted
    grace_seconds      INTEGER,
    finalizing         INTEGER NOT NULL DEFAULT 0, -- the collector's tasks that a DELETING object waits for: 1 orphan its dependents, 2 delete them first, 4 empty the namespace
    deletion_actor     TEXT,                -- who asked for the deletion of a DELETING object
    deletion_cascade   TEXT,                -- the cascade that a DELETING object is part of; null: its own, named by its uid
    deletion_requester TEXT,                -- the client whose delete began that cascade; null: the actor itself
    deletion_request_id TEXT, own_cascade TEXT /* the cascade that its deletion begins; null: named by its uid. A restored object has another, because its uid named one before */, asked_body INTEGER /* of a DELETING object: changes.revision of its body when the deletion was asked for. Compaction keeps it */, asked_at INTEGER /* of a DELETING object: the revision that marked it, which replaced that body */, deletion_confirmer TEXT /* of a DELETING object: the client that last confirmed its deletion while the guard held it; null: none did */,               -- the Audit-Id of that delete; null: it was not a request
    CONSTRAINT objects_kind_namespace_name_key UNIQUE (kind, namespace, name)
) STRICT;

CREATE INDEX objects_cascade_idx ON objects ((coalesce(deletion_cascade, uid))) WHERE deletion_time IS NOT NULL;

CREATE INDEX objects_finalizing_idx
    -- The objects that wait for the collector, for its scan: few rows.
    ON objects (uid) WHERE deletion_time IS NOT NULL AND finalizing <> 0;

CREATE TRIGGER objects_left_namespace_track AFTER DELETE ON objects
-- A terminating namespace is reviewed after each removal of an object in it. A
-- row that is already queued like this is not written again: a cascade removes
-- many objects.
WHEN OLD.namespace <> '' AND EXISTS (
    SELECT 1 FROM objects n
    WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = OLD.namespace AND n.deletion_time IS NOT NULL)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, 'content_removed', unixepoch() * 1000 FROM objects n
    WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = OLD.namespace
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL
    WHERE claim_token IS NOT NULL OR review_after > excluded.review_after OR event <> excluded.event;
END;

CREATE TRIGGER objects_deleting_track AFTER UPDATE OF deletion_time ON objects
-- An object that is DELETING and waits for the collector is reviewed after every
-- change to it.
WHEN NEW.deletion_time IS NOT NULL AND NEW.finalizing <> 0
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (NEW.uid, 0, 0, 'deleting', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_linger_in_namespace_track AFTER UPDATE OF deletion_time ON objects
-- A terminating namespace is also reviewed, for its conditions, when a DELETING
-- object in it changes.
WHEN NEW.deletion_time IS NOT NULL AND NEW.namespace <> '' AND EXISTS (
    SELECT 1 FROM objects n
    WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = NEW.namespace AND n.deletion_time IS NOT NULL)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, 'content_changed', unixepoch() * 1000 FROM objects n
    WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = NEW.namespace
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_disowned AFTER DELETE ON objects
-- The references of a removed object are deleted with it. Sets of objects lose
-- theirs before, in one statement; this is for the others.
WHEN EXISTS (SELECT 1 FROM owners w WHERE w.dependent = OLD.id)
BEGIN
    DELETE FROM owners WHERE dependent = OLD.id;
END;

CREATE TRIGGER objects_removed_track AFTER DELETE ON objects
-- A removed owner is reviewed if it has dependents. Its row proves that the owner
-- existed and is gone, also after its kind is gone: the event says so, and
-- whether the owner was in a namespace.
WHEN EXISTS (SELECT 1 FROM owners WHERE owner_uid = OLD.uid)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (OLD.uid, 0, 0, CASE WHEN OLD.namespace = '' THEN 'cluster_owner_removed' ELSE 'owner_removed' END, unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
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

CREATE TRIGGER objects_declared_track AFTER INSERT ON objects
-- The reconcile loop looks at a resource that is declared, is to be deleted, or
-- whose object was removed without its finalizer. The loop itself writes the
-- status of the object, so a status does not bring it back.
WHEN NEW.kind = 'provisionedresources.provisioning.exeunt.dev'
BEGIN
    INSERT INTO provisioned_resource_reviews (id, review_after, review_count, event, created_at)
    VALUES (NEW.uid, 0, 0, 'declared', unixepoch() * 1000)
    ON CONFLICT (id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_undeclared_track AFTER UPDATE OF deletion_time ON objects
-- As objects_declared_track.
WHEN NEW.kind = 'provisionedresources.provisioning.exeunt.dev' AND OLD.deletion_time IS NULL AND NEW.deletion_time IS NOT NULL
BEGIN
    INSERT INTO provisioned_resource_reviews (id, review_after, review_count, event, created_at)
    VALUES (NEW.uid, 0, 0, 'deletion_requested', unixepoch() * 1000)
    ON CONFLICT (id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_declaration_removed_track AFTER DELETE ON objects
-- As objects_declared_track.
WHEN OLD.kind = 'provisionedresources.provisioning.exeunt.dev'
BEGIN
    INSERT INTO provisioned_resource_reviews (id, review_after, review_count, event, created_at)
    VALUES (OLD.uid, 0, 0, 'declaration_removed', unixepoch() * 1000)
    ON CONFLICT (id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_mesh_deleting_track AFTER UPDATE OF deletion_time ON objects
-- A node whose object is being deleted is drained.
WHEN NEW.kind = 'meshnodes.mesh.exeunt.dev' AND NEW.deletion_time IS NOT NULL
BEGIN
    INSERT INTO mesh_node_reviews (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, 'deleting', CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM mesh_nodes n WHERE n.uid = NEW.uid
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(mesh_node_reviews.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_mesh_removed_track AFTER DELETE ON objects
-- A node whose object was removed by force is no longer a node.
WHEN OLD.kind = 'meshnodes.mesh.exeunt.dev'
BEGIN
    INSERT INTO mesh_node_reviews (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, 'removed', CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM mesh_nodes n WHERE n.uid = OLD.uid
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(mesh_node_reviews.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_project_removed_track AFTER DELETE ON objects
-- Tokens are deleted with their project: a later one of the same name is another
-- project.
WHEN OLD.kind = 'namespaces'
BEGIN
    DELETE FROM bootstrap_tokens WHERE project = OLD.name;
END;

CREATE TRIGGER registry_quotas_removed_trigger AFTER DELETE ON objects
WHEN OLD.kind IN ('resourcequotas', 'repositories.registry.exeunt.dev')
BEGIN
    DELETE FROM registry_quotas WHERE uid = OLD.uid;
END;

CREATE TRIGGER image_uses_removed_trigger AFTER DELETE ON objects
WHEN OLD.kind IN ('controllerrevisions.apps', 'cronjobs.batch', 'daemonsets.apps', 'deployments.apps', 'jobs.batch', 'pods', 'podtemplates',
    'replicasets.apps', 'replicationcontrollers', 'statefulsets.apps')
BEGIN
    UPDATE image_uses SET left_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) WHERE uid = OLD.uid AND left_at IS NULL;
END;

CREATE TABLE owners (
    -- metadata.ownerReferences of the objects that exist. The owner may not
    -- exist. A trigger of objects removes the rows of a removed object: a foreign
    -- key would make a temporary table for every removed object.
    dependent   INTEGER NOT NULL,        -- objects.id
    owner_uid   TEXT NOT NULL,
    blocking    INTEGER NOT NULL,        -- boolean: blockOwnerDeletion
    controller  INTEGER NOT NULL,        -- boolean
    owner_group TEXT NOT NULL DEFAULT '', -- without a version: all versions of a kind are the same objects
    owner_kind  TEXT NOT NULL DEFAULT '',
    owner_name  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (dependent, owner_uid)
) STRICT, WITHOUT ROWID;

CREATE INDEX owners_owner_uid_idx ON owners (owner_uid);

CREATE TRIGGER owners_removed_track AFTER DELETE ON owners
-- An owner that waits for its dependents is reviewed when a blocking dependent is
-- removed, or drops its reference.
WHEN OLD.blocking = 1 AND EXISTS (
    SELECT 1 FROM objects o WHERE o.uid = OLD.owner_uid AND o.deletion_time IS NOT NULL AND o.finalizing & 2 <> 0)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (OLD.owner_uid, 0, 0, 'dependent_removed', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL
    WHERE claim_token IS NOT NULL OR review_after > excluded.review_after OR event <> excluded.event;
END;

CREATE TRIGGER owners_foreign_track AFTER INSERT ON owners
-- A reference puts its dependent under review if the object with its uid is in
-- another namespace, or has another name or kind. Only the definition of a kind
-- knows its plural, so the trigger accepts the regular plurals. With an irregular
-- plural the review finds that nothing is wrong.
WHEN EXISTS (
    SELECT 1 FROM objects o, objects d
    WHERE o.uid = NEW.owner_uid AND d.id = NEW.dependent AND (
        o.namespace <> '' AND o.namespace <> d.namespace
        OR o.name <> NEW.owner_name
        OR (o.kind || CASE WHEN NEW.owner_group = '' THEN '.' ELSE '' END) NOT IN (
            lower(NEW.owner_kind) || 's.' || NEW.owner_group,
            lower(NEW.owner_kind) || 'es.' || NEW.owner_group,
            lower(rtrim(NEW.owner_kind, 'y')) || 'ies.' || NEW.owner_group,
            lower(NEW.owner_kind) || '.' || NEW.owner_group)))
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    SELECT d.uid, 0, 0, 'owner_foreign', unixepoch() * 1000 FROM objects d WHERE d.id = NEW.dependent
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER owners_added_track AFTER INSERT ON owners
-- A reference to an owner that does not exist, or that waits for its dependents,
-- puts that owner under review. The event of a removed owner stays: it is proof.
WHEN NOT EXISTS (
    SELECT 1 FROM objects o WHERE o.uid = NEW.owner_uid AND (o.deletion_time IS NULL OR o.finalizing & 2 = 0))
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (NEW.owner_uid, 0, 0, 'owner_absent', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = CASE WHEN event IN ('owner_removed', 'cluster_owner_removed') THEN event ELSE excluded.event END,
        claim_token = NULL, claim_until = NULL;
END;

CREATE TABLE provisioned_resource_outbox (
    -- Events, in order for each resource.
    sequence    INTEGER PRIMARY KEY AUTOINCREMENT,
    token       TEXT NOT NULL CONSTRAINT provisioned_resource_outbox_token_key UNIQUE, -- at most one event of each type in a life
    resource_id TEXT NOT NULL,
    event_type  TEXT NOT NULL CONSTRAINT provisioned_resource_outbox_token_event_type_check CHECK (event_type IN (
        'broker.ProvisionedResourceRequested', 'broker.ProvisionedResourceReady', 'broker.ProvisionedResourceFailed',
        'broker.ProvisionedResourceDeleting', 'broker.ProvisionedResourceDeleted')),
    payload     TEXT NOT NULL,    -- JSON
    occurred_at INTEGER NOT NULL  -- Unix milliseconds
) STRICT;

CREATE INDEX provisioned_resource_outbox_resource_id_idx ON provisioned_resource_outbox (resource_id, sequence);

CREATE TRIGGER provisioned_resource_outbox_track AFTER INSERT ON provisioned_resource_outbox
-- An event is published as soon as it is committed.
BEGIN
    INSERT INTO provisioned_resource_outbox_reviews (resource_id, review_after, review_count, event, created_at)
    VALUES (NEW.resource_id, 0, 0, 'emitted', unixepoch() * 1000)
    ON CONFLICT (resource_id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TABLE provisioned_resource_outbox_reviews (
    -- Resources that have events to be published: see package review.
    resource_id  TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
, traceparent TEXT) STRICT;

CREATE INDEX provisioned_resource_outbox_reviews_review_after_idx ON provisioned_resource_outbox_reviews (review_after);

CREATE TRIGGER provisioned_resource_outbox_reviews_trace_insert AFTER INSERT ON provisioned_resource_outbox_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE provisioned_resource_outbox_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.resource_id), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE resource_id = NEW.resource_id;
END;

CREATE TRIGGER provisioned_resource_outbox_reviews_trace_update AFTER UPDATE OF event ON provisioned_resource_outbox_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE provisioned_resource_outbox_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.resource_id), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE resource_id = NEW.resource_id;
END;

CREATE TABLE provisioned_resource_published (
    -- Which events have reached which sink.
    token TEXT NOT NULL CONSTRAINT provisioned_resource_published_token_fkey REFERENCES provisioned_resource_outbox (token) ON DELETE CASCADE,
    sink  TEXT NOT NULL,
    PRIMARY KEY (token, sink)
) STRICT, WITHOUT ROWID;

CREATE TABLE provisioned_resource_reviews (
    -- Resources that the reconcile loop must look at: see package review for the columns.
    id           TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
, traceparent TEXT) STRICT;

CREATE INDEX provisioned_resource_reviews_review_after_idx ON provisioned_resource_reviews (review_after);

CREATE TRIGGER provisioned_resource_reviews_trace_insert AFTER INSERT ON provisioned_resource_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE provisioned_resource_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.id), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE id = NEW.id;
END;

CREATE TRIGGER provisioned_resource_reviews_trace_update AFTER UPDATE OF event ON provisioned_resource_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE provisioned_resource_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.id), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE id = NEW.id;
END;

CREATE TABLE provisioned_resources (
    id                          TEXT PRIMARY KEY,
    project                     TEXT NOT NULL,
    name                        TEXT NOT NULL,
    blueprint_name              TEXT NOT NULL,
    blueprint_version           TEXT NOT NULL,
    credential                  TEXT NOT NULL,
    parameters                  TEXT NOT NULL, -- JSON
    xr_api_version              TEXT NOT NULL,
    xr_kind                     TEXT NOT NULL,
    provider_config_api_version TEXT NOT NULL,
    provider_config_kind        TEXT NOT NULL,
    deadline                    INTEGER NOT NULL, -- milliseconds
    request_digest              TEXT NOT NULL,
    phase                       TEXT NOT NULL
        CONSTRAINT provisioned_resources_status_check
        CHECK (phase IN ('Pending', 'Provisioning', 'Enrolling', 'Ready', 'Failed', 'Deregistering', 'Deprovisioning', 'Deleted')),
    phase_since                 INTEGER NOT NULL, -- Unix milliseconds
    token_id                    TEXT NOT NULL,    -- empty: none bound yet
    created_at                  INTEGER NOT NULL, -- Unix milliseconds
    converge_started_at         INTEGER NOT NULL, -- Unix milliseconds
    deletion_requested_at       INTEGER,          -- Unix milliseconds; null: never
    round_token                 TEXT NOT NULL,    -- of the replica whose round it is; empty: none
    round_until                 INTEGER NOT NULL, -- Unix milliseconds
    CONSTRAINT provisioned_resources_deletion_requested_at_check
        CHECK ((deletion_requested_at IS NOT NULL) = (phase IN ('Deregistering', 'Deprovisioning', 'Deleted')))
) STRICT;

CREATE UNIQUE INDEX provisioned_resources_project_name_idx
    -- A name is free again when the resource that had it is Deleted.
    ON provisioned_resources (project, name) WHERE phase <> 'Deleted';

CREATE TRIGGER provisioned_resources_created_track AFTER INSERT ON provisioned_resources
-- The loop looks at once at a resource that is new or has reached another phase.
BEGIN
    INSERT INTO provisioned_resource_reviews (id, review_after, review_count, event, created_at)
    VALUES (NEW.id, 0, 0, 'created', unixepoch() * 1000)
    ON CONFLICT (id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER provisioned_resources_phase_track AFTER UPDATE ON provisioned_resources
WHEN NEW.phase <> OLD.phase
BEGIN
    INSERT INTO provisioned_resource_reviews (id, review_after, review_count, event, created_at)
    VALUES (NEW.id, 0, 0, 'phase_changed', unixepoch() * 1000)
    ON CONFLICT (id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TABLE pull_days (
    -- What was pulled, for simulations of RetentionPolicies. Deleted by age.
    repository_id INTEGER NOT NULL CONSTRAINT pull_days_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    day           INTEGER NOT NULL, -- since 1970, UTC
    name          TEXT NOT NULL,    -- the tag; empty: by its digest
    digest        TEXT NOT NULL,    -- of the manifest
    pulls         INTEGER NOT NULL,
    pulled_at     INTEGER NOT NULL, -- Unix milliseconds; the last time, to the minute
    PRIMARY KEY (repository_id, day, name, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX pull_days_day_idx ON pull_days (day);

CREATE TABLE quota_reviews (
    -- ResourceQuotas whose status must be written, by uid: see package review for
    -- the columns. The transaction that changes the usage adds the row.
    uid          TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
, traceparent TEXT) STRICT;

CREATE INDEX quota_reviews_review_after_idx ON quota_reviews (review_after);

CREATE TRIGGER quota_reviews_trace_insert AFTER INSERT ON quota_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE quota_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE TRIGGER quota_reviews_trace_update AFTER UPDATE OF event ON quota_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE quota_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE VIEW registry_limits AS
-- What the versions of objects in the log say about the bytes of the registry, as numbers. Null: nothing.
SELECT l.revision, l.uid, l.kind, l.namespace, l.name, CAST(CAST(l.most AS REAL) * CASE
        WHEN l.most GLOB '*Ki' THEN 1024.0 WHEN l.most GLOB '*Mi' THEN 1048576.0 WHEN l.most GLOB '*Gi' THEN 1073741824.0
        WHEN l.most GLOB '*Ti' THEN 1099511627776.0 WHEN l.most GLOB '*Pi' THEN 1125899906842624.0 WHEN l.most GLOB '*Ei' THEN 1152921504606846976.0
        WHEN l.most GLOB '*k' THEN 1e3 WHEN l.most GLOB '*M' THEN 1e6 WHEN l.most GLOB '*G' THEN 1e9
        WHEN l.most GLOB '*T' THEN 1e12 WHEN l.most GLOB '*P' THEN 1e15 WHEN l.most GLOB '*E' THEN 1e18
        WHEN l.most GLOB '*m' THEN 1e-3 WHEN l.most GLOB '*u' THEN 1e-6 WHEN l.most GLOB '*n' THEN 1e-9 ELSE 1.0 END AS INTEGER) AS most
FROM (
    SELECT c.*, CASE c.kind
        WHEN 'resourcequotas' THEN CAST(c.body AS TEXT) ->> '$.spec.hard."registry.exeunt.dev/bytes"'
        ELSE CAST(c.body AS TEXT) ->> '$.spec.quota' END AS most
    FROM changes c WHERE c.kind IN ('resourcequotas', 'repositories.registry.exeunt.dev') AND c.type IN (1, 2)) AS l;

CREATE TABLE registry_quotas (
    -- The limits of bytes of blobs, each with what is used: one row for each object that sets one. A blob counts once in
    -- each repository that has it. Repositories and namespaces without a limit have no row, and are not counted.
    uid       TEXT PRIMARY KEY,    -- of a ResourceQuota or a Repository
    name      TEXT NOT NULL,       -- for people
    namespace TEXT,                -- of the ResourceQuota, which limits all its repositories; null: of a Repository, which limits itself
    most      INTEGER NOT NULL,
    bytes     INTEGER NOT NULL
) STRICT;

CREATE INDEX registry_quotas_namespace_idx ON registry_quotas (namespace) WHERE namespace IS NOT NULL;

CREATE TRIGGER registry_quotas_review_trigger AFTER UPDATE OF bytes ON registry_quotas
-- The status of the ResourceQuota shows it.
WHEN NEW.namespace IS NOT NULL AND NEW.bytes <> OLD.bytes
BEGIN
    INSERT INTO quota_reviews (uid, review_after, review_count, event, created_at) VALUES (NEW.uid, 0, 0, 'registry', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET review_after = excluded.review_after, event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

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

CREATE UNIQUE INDEX repositories_object_uid_idx ON repositories (object_uid) WHERE object_uid IS NOT NULL;

CREATE INDEX repositories_top_level_namespace_id_idx ON repositories (top_level_namespace_id);

CREATE TABLE repository_blobs (
    -- Which blobs a repository may serve: pushed or mounted there.
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL CONSTRAINT repository_blobs_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    blob_id                INTEGER NOT NULL CONSTRAINT repository_blobs_blob_id_fkey REFERENCES blobs (id) ON DELETE CASCADE,
    created_at             INTEGER NOT NULL, -- Unix milliseconds
    PRIMARY KEY (repository_id, blob_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX repository_blobs_blob_id_idx ON repository_blobs (blob_id);

CREATE TRIGGER registry_quotas_link_trigger AFTER INSERT ON repository_blobs
-- A repository got a blob. If it does not fit, the transaction fails.
BEGIN
    UPDATE registry_quotas SET bytes = bytes + (SELECT b.size FROM blobs b WHERE b.id = NEW.blob_id)
    WHERE uid = (SELECT r.object_uid FROM repositories r WHERE r.id = NEW.repository_id)
        OR namespace = (SELECT n.name FROM top_level_namespaces n WHERE n.id = NEW.top_level_namespace_id);
    SELECT RAISE(ABORT, 'registry quota') WHERE EXISTS (
        SELECT 1 FROM registry_quotas q
        WHERE q.bytes > q.most AND (q.uid = (SELECT r.object_uid FROM repositories r WHERE r.id = NEW.repository_id)
            OR q.namespace = (SELECT n.name FROM top_level_namespaces n WHERE n.id = NEW.top_level_namespace_id)));
END;

CREATE TRIGGER registry_quotas_unlink_trigger AFTER DELETE ON repository_blobs
-- A repository lost a blob, which gives its bytes back.
BEGIN
    UPDATE registry_quotas SET bytes = bytes - coalesce((SELECT b.size FROM blobs b WHERE b.id = OLD.blob_id), 0)
    WHERE uid = (SELECT r.object_uid FROM repositories r WHERE r.id = OLD.repository_id)
        OR namespace = (SELECT n.name FROM top_level_namespaces n WHERE n.id = OLD.top_level_namespace_id);
END;

CREATE TABLE restore_reviews (
    -- Restores that go on: see package review for the columns.
    name         TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL,
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER,
    traceparent  TEXT
) STRICT;

CREATE INDEX restore_reviews_review_after_idx ON restore_reviews (review_after);

CREATE TABLE restores (
    -- Restores that clients asked for: package deletion/archive.
    name       TEXT PRIMARY KEY,
    requester  TEXT NOT NULL,    -- the name of the user whose rights it has
    created_at INTEGER NOT NULL, -- Unix milliseconds
    ended_at   INTEGER,          -- null: it goes on
    state      TEXT NOT NULL     -- JSON: what is asked for, by whom, and the results so far
) STRICT;

CREATE INDEX restores_requester_idx ON restores (requester, created_at);

CREATE TABLE revision (
    -- The counter of the object log: one row.
    one       INTEGER PRIMARY KEY CONSTRAINT revision_one_check CHECK (one = 1),
    current   INTEGER NOT NULL,          -- the newest revision
    compacted INTEGER NOT NULL,          -- states before this revision are gone
    archived  INTEGER NOT NULL DEFAULT 0, -- bytes of the bodies that the archive holds: kept here because every write changes this row anyway
    quotas    INTEGER NOT NULL DEFAULT 0  -- revision of the last change to what a ResourceQuota limits: every write reads this row anyway
, changed_at INTEGER NOT NULL DEFAULT 0, moved      INTEGER NOT NULL DEFAULT 0, policies INTEGER NOT NULL DEFAULT 0) STRICT;

INSERT INTO revision VALUES (1, 1, 0, 0, 0, 0, 1, 0);

CREATE TABLE seal_keys (
    -- The keys that may have sealed a body. A server without one of them is
    -- refused while a body needs it. See docs/spec/sealing.md.
    name        TEXT PRIMARY KEY,
    check_value BLOB NOT NULL,             -- a known text, sealed with the key
    sealing     INTEGER NOT NULL DEFAULT 0 -- boolean: every replica seals with this one
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX seal_keys_sealing_idx ON seal_keys (sealing) WHERE sealing = 1;

CREATE TABLE sealed_kinds (
    -- The kinds that may have sealed bodies.
    kind TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE small_blobs (
    -- The bytes of small blobs. One transaction writes row and bytes, so they
    -- need no file, no sync of their own and no unlinking.
    blob_id INTEGER PRIMARY KEY CONSTRAINT small_blobs_blob_id_fkey REFERENCES blobs (id) ON DELETE CASCADE,
    content BLOB NOT NULL
) STRICT;

CREATE TABLE tag_days (
    -- What was pushed and deleted, likewise: the state of each tag before the first change of a day, and after the last.
    repository_id INTEGER NOT NULL CONSTRAINT tag_days_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    day           INTEGER NOT NULL, -- since 1970, UTC
    name          TEXT NOT NULL,
    was_digest    TEXT,             -- of the manifest; null: it is not known
    was_pushed_at INTEGER,          -- Unix milliseconds; null: the tag did not exist
    digest        TEXT,
    pushed_at     INTEGER,          -- null: the tag does not exist
    PRIMARY KEY (repository_id, day, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tag_days_day_idx ON tag_days (day);

CREATE TABLE tags (
    top_level_namespace_id INTEGER NOT NULL,
    repository_id          INTEGER NOT NULL CONSTRAINT tags_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    name                   TEXT NOT NULL,
    manifest_id            INTEGER NOT NULL CONSTRAINT tags_manifest_id_fkey REFERENCES manifests (id) ON DELETE CASCADE,
    created_at             INTEGER NOT NULL, -- Unix milliseconds
    updated_at             INTEGER NOT NULL, pulled_at INTEGER /* Unix milliseconds, to the hour; when its manifest was last pulled; null: not since it is recorded */, fetched_at INTEGER /* Unix milliseconds; when the upstream of a cached repository last named its manifest; null: a client pushed the tag */, -- Unix milliseconds; when it was last pushed
    PRIMARY KEY (repository_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_manifest_id_idx ON tags (manifest_id);

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

CREATE TRIGGER tags_inserted_day_trigger AFTER INSERT ON tags
BEGIN
    INSERT INTO tag_days (repository_id, day, name, digest, pushed_at)
    SELECT NEW.repository_id, NEW.updated_at / 86400000, NEW.name, m.digest, NEW.updated_at FROM manifests m WHERE m.id = NEW.manifest_id
    ON CONFLICT (repository_id, day, name) DO UPDATE SET digest = excluded.digest, pushed_at = excluded.pushed_at;
END;

CREATE TRIGGER tags_pushed_day_trigger AFTER UPDATE OF manifest_id, updated_at ON tags
WHEN NEW.updated_at > OLD.updated_at
BEGIN
    INSERT INTO tag_days (repository_id, day, name, was_digest, was_pushed_at, digest, pushed_at)
    SELECT NEW.repository_id, NEW.updated_at / 86400000, NEW.name, (SELECT w.digest FROM manifests w WHERE w.id = OLD.manifest_id), OLD.updated_at, m.digest, NEW.updated_at
    FROM manifests m WHERE m.id = NEW.manifest_id
    ON CONFLICT (repository_id, day, name) DO UPDATE SET digest = excluded.digest, pushed_at = excluded.pushed_at;
END;

CREATE TRIGGER tags_deleted_day_trigger AFTER DELETE ON tags
-- A tag that is deleted with its repository gets no row.
BEGIN
    INSERT INTO tag_days (repository_id, day, name, was_digest, was_pushed_at)
    SELECT r.id, unixepoch() / 86400, OLD.name, (SELECT w.digest FROM manifests w WHERE w.id = OLD.manifest_id), OLD.updated_at
    FROM repositories r WHERE r.id = OLD.repository_id
    ON CONFLICT (repository_id, day, name) DO UPDATE SET digest = NULL, pushed_at = NULL;
END;

CREATE TABLE top_level_namespaces (
    -- The first component of the paths of repositories. Deleted with the API
    -- namespace.
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL CONSTRAINT top_level_namespaces_name_key UNIQUE,
    created_at INTEGER NOT NULL,          -- Unix milliseconds
    deleting   INTEGER NOT NULL DEFAULT 0 -- boolean: the API namespace is Terminating
) STRICT;

CREATE TABLE trace_marks (
    -- Which trace the current transaction belongs to. A transaction adds rows and deletes
    -- them again, so other transactions never see one. The triggers below copy the
    -- trace to the rows that the transaction enqueues.
    subject     TEXT PRIMARY KEY, -- uid of an object that a client deletes; empty: all subjects
    traceparent TEXT NOT NULL     -- as in W3C Trace Context
) STRICT, WITHOUT ROWID;

CREATE TABLE works (
    -- What takes long in other processes, while it goes on: see package underway.
    id           TEXT PRIMARY KEY,
    what         TEXT NOT NULL,
    requested_by TEXT NOT NULL,    -- the user; empty: a command on the server's own data
    began_at     INTEGER NOT NULL,
    until        INTEGER NOT NULL, -- when the row counts no more, unless its process renews it
    far          TEXT NOT NULL,    -- how far it is, for people
    done         INTEGER NOT NULL,
    total        INTEGER NOT NULL  -- 0: not known
) STRICT;
