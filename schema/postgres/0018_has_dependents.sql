-- Whether somebody is left who names what is gone as an owner: asked by the index
-- on owner_uid. EXISTS reads the primary key from end to end for each where
-- nearly all references name one owner, which is what a large cascade is.
CREATE OR REPLACE FUNCTION gc_track_objects_removed() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    DELETE FROM owners w USING gone g WHERE w.dependent = g.id;
    PERFORM gc_enqueue_object(found.uid, found.cause) FROM (
        SELECT g.uid, 'owner_removed' AS cause FROM gone g
        WHERE (SELECT TRUE FROM owners w WHERE w.owner_uid >= g.uid AND w.owner_uid <= g.uid ORDER BY w.owner_uid LIMIT 1) IS NOT NULL
        UNION ALL
        SELECT n.uid, 'content_removed' FROM (SELECT DISTINCT g.namespace FROM gone g WHERE g.namespace <> '') AS emptied
        JOIN objects n ON n.kind = 'namespaces' AND n.namespace = '' AND n.name = emptied.namespace AND n.deletion_time IS NOT NULL
        ORDER BY 1) AS found;
    RETURN NULL;
END
$$;
