-- What happens to an object that is being deleted is for triggers that look at
-- the deletion only. A write that leaves an ACTIVE object ACTIVE does not set
-- the column.

DROP TRIGGER objects_deleting_track ON objects;
CREATE TRIGGER objects_deleting_track AFTER UPDATE OF deletion_time ON objects
    FOR EACH ROW WHEN (NEW.deletion_time IS NOT NULL)
    EXECUTE FUNCTION gc_track_object_deleting();

DROP TRIGGER objects_mesh_deleting_track ON objects;
CREATE TRIGGER objects_mesh_deleting_track AFTER UPDATE OF deletion_time ON objects
    FOR EACH ROW WHEN (NEW.kind = 'meshnodes.mesh.exeunt.dev' AND NEW.deletion_time IS NOT NULL)
    EXECUTE FUNCTION mesh_track_object_deleting();

DROP TRIGGER objects_undeclared_track ON objects;
CREATE TRIGGER objects_undeclared_track AFTER UPDATE OF deletion_time ON objects
    FOR EACH ROW WHEN (NEW.kind = 'provisionedresources.provisioning.exeunt.dev' AND OLD.deletion_time IS NULL AND NEW.deletion_time IS NOT NULL)
    EXECUTE FUNCTION broker_track_declaration();

DROP TRIGGER repositories_follow_deleting_trigger ON objects;
CREATE TRIGGER repositories_follow_deleting_trigger AFTER UPDATE OF deletion_time ON objects
    FOR EACH ROW WHEN (NEW.kind = 'repositories.registry.exeunt.dev' AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL)
    EXECUTE FUNCTION repositories_follow_deleting();

DROP TRIGGER top_level_namespaces_follow_deleting_trigger ON objects;
CREATE TRIGGER top_level_namespaces_follow_deleting_trigger AFTER UPDATE OF deletion_time ON objects
    FOR EACH ROW WHEN (NEW.kind = 'namespaces' AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL)
    EXECUTE FUNCTION top_level_namespaces_follow();
