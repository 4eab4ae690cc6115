CREATE TABLE registry_quotas (
    uid       text COLLATE "C" CONSTRAINT registry_quotas_pkey PRIMARY KEY,
    name      text COLLATE "C" NOT NULL,
    namespace text COLLATE "C",
    most      bigint NOT NULL,
    bytes     bigint NOT NULL
);
COMMENT ON TABLE registry_quotas IS 'The limits of bytes of blobs, each with what is used: one row for each object that sets one. A blob counts once in each repository that has it. Repositories and namespaces without a limit have no row, and are not counted.';
COMMENT ON COLUMN registry_quotas.uid IS 'of a ResourceQuota or a Repository';
COMMENT ON COLUMN registry_quotas.name IS 'for people';
COMMENT ON COLUMN registry_quotas.namespace IS 'of the ResourceQuota, which limits all its repositories; null: of a Repository, which limits itself';
CREATE INDEX registry_quotas_namespace_idx ON registry_quotas (namespace) WHERE namespace IS NOT NULL;

CREATE FUNCTION registry_quotas_review() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO quota_reviews (uid, review_after, review_count, event, created_at) VALUES (NEW.uid, 0, 0, 'registry', gc_now())
    ON CONFLICT (uid) DO UPDATE SET review_after = excluded.review_after, event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION registry_quotas_review IS 'The status of the ResourceQuota shows it.';
CREATE TRIGGER registry_quotas_review_trigger AFTER UPDATE OF bytes ON registry_quotas
    FOR EACH ROW WHEN (NEW.namespace IS NOT NULL AND NEW.bytes <> OLD.bytes) EXECUTE FUNCTION registry_quotas_review();

CREATE FUNCTION registry_quotas_add(repository bigint, home bigint, added bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    limits text[] := ARRAY(
        SELECT q.uid FROM registry_quotas q
        WHERE q.uid = (SELECT r.object_uid FROM repositories r WHERE r.id = repository)
            OR q.namespace = (SELECT n.name FROM top_level_namespaces n WHERE n.id = home)
        ORDER BY q.uid FOR UPDATE);
BEGIN
    IF cardinality(limits) = 0 THEN
        RETURN;
    END IF;
    UPDATE registry_quotas SET bytes = bytes + added WHERE uid = ANY (limits);
    IF added > 0 AND EXISTS (SELECT 1 FROM registry_quotas WHERE uid = ANY (limits) AND bytes > most) THEN
        RAISE EXCEPTION 'registry quota';
    END IF;
END
$$;
COMMENT ON FUNCTION registry_quotas_add IS 'Counts bytes in the limits of a repository and of its namespace, which it locks in order, until the transaction ends. It fails if they do not fit.';

CREATE FUNCTION registry_quotas_link() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM registry_quotas_add(NEW.repository_id, NEW.top_level_namespace_id, (SELECT b.size FROM blobs b WHERE b.id = NEW.blob_id));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION registry_quotas_link IS 'A repository got a blob. Its foreign key has locked the repository, so a new limit waits for this transaction, or is seen here: triggers fire in the order of their names, and that of the key is the first.';
CREATE TRIGGER registry_quotas_link_trigger AFTER INSERT ON repository_blobs FOR EACH ROW EXECUTE FUNCTION registry_quotas_link();

CREATE FUNCTION registry_quotas_unlink() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    lost record;
BEGIN
    PERFORM 1 FROM repositories r WHERE r.id IN (SELECT d.repository_id FROM removed d) ORDER BY r.id FOR KEY SHARE;
    IF EXISTS (SELECT 1 FROM registry_quotas) THEN
        FOR lost IN
            SELECT d.repository_id, d.top_level_namespace_id, sum(b.size)::bigint AS size
            FROM removed d JOIN blobs b ON b.id = d.blob_id GROUP BY 1, 2 ORDER BY 1
        LOOP
            PERFORM registry_quotas_add(lost.repository_id, lost.top_level_namespace_id, -lost.size);
        END LOOP;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION registry_quotas_unlink IS 'Repositories lost blobs, which gives their bytes back. The lock on the repositories keeps new limits away, which would count what goes.';
CREATE TRIGGER registry_quotas_unlink_trigger AFTER DELETE ON repository_blobs REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION registry_quotas_unlink();

CREATE FUNCTION registry_quotas_collect() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM repository_blobs WHERE blob_id = OLD.id;
    RETURN OLD;
END
$$;
COMMENT ON FUNCTION registry_quotas_collect IS 'The links go before the blob, while its size is known.';
CREATE TRIGGER registry_quotas_collect_trigger BEFORE DELETE ON blobs FOR EACH ROW EXECUTE FUNCTION registry_quotas_collect();

CREATE FUNCTION registry_quotas_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM registry_quotas WHERE uid = OLD.uid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION registry_quotas_removed IS 'A limit goes with its object.';
CREATE TRIGGER registry_quotas_removed_trigger AFTER DELETE ON objects
    FOR EACH ROW WHEN (OLD.kind IN ('resourcequotas', 'repositories.registry.exeunt.dev')) EXECUTE FUNCTION registry_quotas_removed();

CREATE FUNCTION registry_bytes(quantity text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT least(9223372036854775807, trunc(substring(quantity FROM '^[0-9.]+(?:[eE][+-]?[0-9]+)?')::numeric * CASE substring(quantity FROM '[A-Za-z]+$')
        WHEN 'Ki' THEN 1024::numeric WHEN 'Mi' THEN 1048576 WHEN 'Gi' THEN 1073741824 WHEN 'Ti' THEN 1099511627776
        WHEN 'Pi' THEN 1125899906842624 WHEN 'Ei' THEN 1152921504606846976
        WHEN 'k' THEN 1e3 WHEN 'M' THEN 1e6 WHEN 'G' THEN 1e9 WHEN 'T' THEN 1e12 WHEN 'P' THEN 1e15 WHEN 'E' THEN 1e18
        WHEN 'm' THEN 1e-3 WHEN 'u' THEN 1e-6 WHEN 'n' THEN 1e-9 ELSE 1 END))::bigint
$$;
COMMENT ON FUNCTION registry_bytes IS 'A quantity of Kubernetes as a number. Null: none.';

CREATE FUNCTION repositories_quota() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    spec json;
    space boolean := NEW.kind = 'resourcequotas';
    limit_bytes bigint;
    home bigint;
BEGIN
    IF position('"registry.exeunt.dev/bytes"'::bytea IN NEW.body) > 0 OR NOT space THEN
        spec := convert_from(NEW.body, 'UTF8')::json -> 'spec';
        limit_bytes := registry_bytes(CASE WHEN space THEN spec -> 'hard' ->> 'registry.exeunt.dev/bytes' ELSE spec ->> 'quota' END);
    END IF;
    IF limit_bytes IS NULL THEN
        DELETE FROM registry_quotas WHERE uid = NEW.uid;
        RETURN NULL;
    END IF;
    UPDATE registry_quotas SET most = limit_bytes WHERE uid = NEW.uid AND most <> limit_bytes;
    IF EXISTS (SELECT 1 FROM registry_quotas WHERE uid = NEW.uid) THEN
        RETURN NULL;
    END IF;
    IF space THEN
        home := (SELECT n.id FROM top_level_namespaces n WHERE n.name = NEW.namespace);
    END IF;
    PERFORM 1 FROM repositories r WHERE r.object_uid = NEW.uid OR r.top_level_namespace_id = home ORDER BY r.id FOR UPDATE;
    INSERT INTO registry_quotas (uid, name, namespace, most, bytes)
    SELECT NEW.uid, CASE WHEN space THEN 'ResourceQuota ' ELSE 'Repository ' END || NEW.name, CASE WHEN space THEN NEW.namespace END, limit_bytes,
        coalesce(sum(b.size), 0)::bigint
    FROM repositories r JOIN repository_blobs x ON x.repository_id = r.id JOIN blobs b ON b.id = x.blob_id
    WHERE r.object_uid = NEW.uid OR r.top_level_namespace_id = home;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION repositories_quota IS 'An object sets, changes or takes away a limit. A new limit begins with what there is: it waits for the transactions that add or remove blobs, and later ones wait for it.';
CREATE TRIGGER repositories_quota_trigger AFTER INSERT ON changes
    FOR EACH ROW WHEN (NEW.kind IN ('resourcequotas', 'repositories.registry.exeunt.dev') AND NEW.type IN (1, 2)) EXECUTE FUNCTION repositories_quota();
