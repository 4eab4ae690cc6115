-- A repository of the registry is also an object: Repository, of
-- registry.exeunt.dev/v1. Triggers on the objects keep its row in step with it,
-- in the transaction that writes the object, so nothing can come between them:
--
--   the object is written     the row is made, or takes over what the spec says
--   it becomes DELETING       pushes are refused
--   it is removed             the row becomes unreachable, with all its content
--   it is restored            the row is what it was
--   it left the archive       the row is reviewed, and its content goes
--
-- docs/spec/registry-tracking.md has the argument.

ALTER TABLE repositories ADD COLUMN object_uid text COLLATE "C";
ALTER TABLE repositories ADD COLUMN deleting boolean NOT NULL DEFAULT false;
ALTER TABLE repositories ADD COLUMN removed_at bigint;
COMMENT ON COLUMN repositories.object_uid IS 'of its Repository; null: none was made yet';
COMMENT ON COLUMN repositories.deleting IS 'nothing is pushed to it any more';
COMMENT ON COLUMN repositories.removed_at IS 'Unix milliseconds; null: the Repository exists. The path of one that is removed is @ and the uid, which no request can ask for';

CREATE UNIQUE INDEX repositories_object_uid_idx ON repositories (object_uid) WHERE object_uid IS NOT NULL;

ALTER TABLE top_level_namespaces ADD COLUMN deleting boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN top_level_namespaces.deleting IS 'the API namespace is Terminating';

ALTER TABLE archive ADD COLUMN restored_as text COLLATE "C";
COMMENT ON COLUMN archive.restored_as IS 'the uid of the object that was made of this row, last';

CREATE INDEX archive_restored_as_idx ON archive (restored_as) WHERE restored_as IS NOT NULL;

CREATE TABLE gc_repository_review_queue (
    uid          text COLLATE "C" PRIMARY KEY,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint
) WITH (fillfactor = 50);
COMMENT ON TABLE gc_repository_review_queue IS 'Repositories that were removed: their content goes when they can no longer be restored. See package review for the columns.';
COMMENT ON COLUMN gc_repository_review_queue.uid IS 'of the Repository';

CREATE INDEX gc_repository_review_queue_review_after_idx ON gc_repository_review_queue (review_after);

CREATE FUNCTION repositories_follow_created() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    spec json := convert_from(NEW.body, 'UTF8')::json -> 'spec';
    home bigint;
BEGIN
    INSERT INTO top_level_namespaces (name, created_at) VALUES (NEW.namespace, gc_now())
    ON CONFLICT (name) DO UPDATE SET name = excluded.name
    RETURNING id INTO home;
    UPDATE repositories SET path = spec ->> 'path', object_uid = NEW.uid, deleting = false, removed_at = NULL
    WHERE path = (SELECT '@' || a.uid FROM archive a WHERE a.restored_as = NEW.uid LIMIT 1)
        AND NOT EXISTS (SELECT 1 FROM repositories r WHERE r.path = spec ->> 'path');
    INSERT INTO repositories (top_level_namespace_id, path, created_at, object_uid, gc_hold, gc_delay)
    VALUES (home, spec ->> 'path', gc_now(), NEW.uid,
        coalesce((spec ->> 'hold')::boolean, false), (spec ->> 'reviewAfterSeconds')::bigint * 1000)
    ON CONFLICT (path) DO UPDATE SET
        object_uid = excluded.object_uid, gc_hold = excluded.gc_hold, gc_delay = excluded.gc_delay;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION repositories_follow_created IS 'A Repository has a row. One that is restored has the row that it had, and its content back.';
CREATE TRIGGER repositories_follow_created_trigger AFTER INSERT ON changes
    FOR EACH ROW WHEN (NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.type = 1)
    EXECUTE FUNCTION repositories_follow_created();

CREATE FUNCTION repositories_follow_updated() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    spec json := convert_from(NEW.body, 'UTF8')::json -> 'spec';
    hold boolean := coalesce((spec ->> 'hold')::boolean, false);
    delay bigint := (spec ->> 'reviewAfterSeconds')::bigint * 1000;
BEGIN
    -- Most changes are of the status, and must not wait for pushes.
    UPDATE repositories r SET gc_hold = hold, gc_delay = delay
    WHERE r.object_uid = NEW.uid AND (r.gc_hold <> hold OR r.gc_delay IS DISTINCT FROM delay);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION repositories_follow_updated IS 'What the spec says about collection holds from now on.';
CREATE TRIGGER repositories_follow_updated_trigger AFTER INSERT ON changes
    FOR EACH ROW WHEN (NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.type = 2)
    EXECUTE FUNCTION repositories_follow_updated();

CREATE FUNCTION repositories_follow_deleting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE repositories SET deleting = true WHERE object_uid = NEW.uid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION repositories_follow_deleting IS 'Nothing is pushed to a Repository that is on its way out.';
CREATE TRIGGER repositories_follow_deleting_trigger AFTER UPDATE ON objects
    FOR EACH ROW WHEN (NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL)
    EXECUTE FUNCTION repositories_follow_deleting();

CREATE FUNCTION repositories_follow_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- The row before the queue, as reviews take them.
    UPDATE repositories SET path = '@' || OLD.uid, deleting = true, removed_at = gc_now(), gc_hold = false
    WHERE object_uid = OLD.uid;
    INSERT INTO gc_repository_review_queue AS q (uid, review_after, review_count, event, created_at)
    SELECT OLD.uid, CASE WHEN EXISTS (SELECT 1 FROM archive a WHERE a.uid = OLD.uid) THEN gc_now() + 3600000 ELSE 0 END,
        0, 'repository_delete', gc_now()
    FROM repositories r WHERE r.object_uid = OLD.uid
    ON CONFLICT (uid) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION repositories_follow_removed IS 'The content of a Repository that is gone cannot be reached. A hold is for collection; this is a deletion. While the archive has the object, the review only looks after what was forgotten.';
CREATE TRIGGER repositories_follow_removed_trigger AFTER DELETE ON objects
    FOR EACH ROW WHEN (OLD.kind = 'repositories.registry.exeunt.dev')
    EXECUTE FUNCTION repositories_follow_removed();

CREATE FUNCTION repositories_follow_archive() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE gc_repository_review_queue SET review_after = 0, event = 'archive_delete', claim_token = NULL, claim_until = NULL
    WHERE uid = OLD.uid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION repositories_follow_archive IS 'A Repository that can no longer be restored is reviewed.';
CREATE TRIGGER repositories_follow_archive_trigger AFTER DELETE ON archive
    FOR EACH ROW WHEN (OLD.kind = 'repositories.registry.exeunt.dev')
    EXECUTE FUNCTION repositories_follow_archive();

CREATE FUNCTION top_level_namespaces_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE top_level_namespaces SET deleting = (NEW.deletion_time IS NOT NULL)
    WHERE name = NEW.name AND deleting <> (NEW.deletion_time IS NOT NULL);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION top_level_namespaces_follow IS 'Nothing is pushed to a namespace that is on its way out.';
CREATE TRIGGER top_level_namespaces_follow_created_trigger AFTER INSERT ON objects
    FOR EACH ROW WHEN (NEW.kind = 'namespaces') EXECUTE FUNCTION top_level_namespaces_follow();
CREATE TRIGGER top_level_namespaces_follow_deleting_trigger AFTER UPDATE ON objects
    FOR EACH ROW WHEN (NEW.kind = 'namespaces' AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL)
    EXECUTE FUNCTION top_level_namespaces_follow();
