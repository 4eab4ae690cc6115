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

CREATE TRIGGER registry_quotas_collect_trigger BEFORE DELETE ON blobs
-- The links go before the blob, while its size is known.
WHEN EXISTS (SELECT 1 FROM registry_quotas)
BEGIN
    DELETE FROM repository_blobs WHERE blob_id = OLD.id;
END;

CREATE TRIGGER registry_quotas_removed_trigger AFTER DELETE ON objects
WHEN OLD.kind IN ('resourcequotas', 'repositories.registry.exeunt.dev')
BEGIN
    DELETE FROM registry_quotas WHERE uid = OLD.uid;
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
