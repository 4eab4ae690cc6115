-- What happens to an object that is being deleted is for triggers that look at
-- the deletion only. A write that leaves an ACTIVE object ACTIVE does not set
-- the column, and then none of them is even called: six calls less for each
-- update.

DROP TRIGGER objects_deleting_track;
CREATE TRIGGER objects_deleting_track AFTER UPDATE OF deletion_time ON objects
WHEN NEW.deletion_time IS NOT NULL AND NEW.finalizing <> 0
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (NEW.uid, 0, 0, 'deleting', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

DROP TRIGGER objects_linger_in_namespace_track;
CREATE TRIGGER objects_linger_in_namespace_track AFTER UPDATE OF deletion_time ON objects
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

DROP TRIGGER objects_mesh_deleting_track;
CREATE TRIGGER objects_mesh_deleting_track AFTER UPDATE OF deletion_time ON objects
WHEN NEW.kind = 'meshnodes.mesh.exeunt.dev' AND NEW.deletion_time IS NOT NULL
BEGIN
    INSERT INTO mesh_node_reviews (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, 'deleting', CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM mesh_nodes n WHERE n.uid = NEW.uid
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(mesh_node_reviews.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

DROP TRIGGER objects_undeclared_track;
CREATE TRIGGER objects_undeclared_track AFTER UPDATE OF deletion_time ON objects
WHEN NEW.kind = 'provisionedresources.provisioning.exeunt.dev' AND OLD.deletion_time IS NULL AND NEW.deletion_time IS NOT NULL
BEGIN
    INSERT INTO provisioned_resource_reviews (id, review_after, review_count, event, created_at)
    VALUES (NEW.uid, 0, 0, 'deletion_requested', unixepoch() * 1000)
    ON CONFLICT (id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

DROP TRIGGER repositories_follow_deleting_trigger;
CREATE TRIGGER repositories_follow_deleting_trigger AFTER UPDATE OF deletion_time ON objects
WHEN NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL
BEGIN
    UPDATE repositories SET deleting = 1 WHERE object_uid = NEW.uid;
END;

DROP TRIGGER top_level_namespaces_follow_deleting_trigger;
CREATE TRIGGER top_level_namespaces_follow_deleting_trigger AFTER UPDATE OF deletion_time ON objects
WHEN NEW.kind = 'namespaces' AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL
BEGIN
    UPDATE top_level_namespaces SET deleting = 1 WHERE name = NEW.name;
END;

-- The references of a removed object go with it. A foreign key did that, at the
-- price of a temporary table for every object that was removed, whether it had
-- references or not. Sets of objects lose theirs beforehand, in one statement;
-- this is for the others.
CREATE TABLE owners_before AS SELECT dependent, owner_uid, blocking, controller FROM owners;
DROP TABLE owners;
CREATE TABLE owners (
    -- metadata.ownerReferences of the objects that exist. The owner may not.
    dependent  INTEGER NOT NULL,
    owner_uid  TEXT NOT NULL,
    blocking   INTEGER NOT NULL, -- boolean: blockOwnerDeletion
    controller INTEGER NOT NULL, -- boolean
    PRIMARY KEY (dependent, owner_uid)
) STRICT, WITHOUT ROWID;
CREATE INDEX owners_owner_uid_idx ON owners (owner_uid);
INSERT INTO owners SELECT dependent, owner_uid, blocking, controller FROM owners_before;
DROP TABLE owners_before;

CREATE TRIGGER owners_added_track AFTER INSERT ON owners
WHEN NOT EXISTS (
    SELECT 1 FROM objects o WHERE o.uid = NEW.owner_uid AND (o.deletion_time IS NULL OR o.finalizing & 2 = 0))
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    VALUES (NEW.owner_uid, 0, 0, 'owner_absent', unixepoch() * 1000)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER owners_foreign_track AFTER INSERT ON owners
WHEN EXISTS (
    SELECT 1 FROM objects o, objects d
    WHERE o.uid = NEW.owner_uid AND d.id = NEW.dependent AND o.namespace <> '' AND o.namespace <> d.namespace)
BEGIN
    INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
    SELECT d.uid, 0, 0, 'owner_foreign', unixepoch() * 1000 FROM objects d WHERE d.id = NEW.dependent
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER owners_removed_track AFTER DELETE ON owners
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

CREATE TRIGGER objects_disowned AFTER DELETE ON objects
WHEN EXISTS (SELECT 1 FROM owners w WHERE w.dependent = OLD.id)
BEGIN
    DELETE FROM owners WHERE dependent = OLD.id;
END;
