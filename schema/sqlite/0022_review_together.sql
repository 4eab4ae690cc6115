-- The blobs of a manifest that goes are reviewed together: what is added to their
-- delay by chance is the same for all of them. They lie together, so in a large
-- registry their pages are read and written once, and not once for each.

DROP VIEW gc_enqueue_blob;
CREATE VIEW gc_enqueue_blob AS SELECT '' AS digest, '' AS event, 0 AS together;
CREATE TRIGGER gc_enqueue_blob_trigger INSTEAD OF INSERT ON gc_enqueue_blob
BEGIN
    INSERT INTO gc_blob_review_queue (digest, review_after, review_count, event, created_at)
    SELECT NEW.digest, s.now + s.delay + abs(coalesce(NEW.together * 2654435761, random()) % (1 + min(s.delay / 10, 60000))), 0, NEW.event, s.now
    FROM (SELECT d.now, max(d.value, d.least) AS delay FROM gc_delays d WHERE d.event = NEW.event) AS s
    WHERE true
    ON CONFLICT (digest) DO UPDATE SET
        review_after = max(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

DROP TRIGGER gc_track_deleted_layers_trigger;
CREATE TRIGGER gc_track_deleted_layers_trigger AFTER DELETE ON layers
BEGIN
    DELETE FROM gc_blobs_layers WHERE blob_id = OLD.blob_id AND layer_id = OLD.id;
    INSERT INTO gc_enqueue_blob (digest, event, together)
    VALUES ((SELECT b.digest FROM blobs b WHERE b.id = OLD.blob_id), 'layer_delete', OLD.manifest_id);
END;

DROP TRIGGER gc_track_deleted_manifests_trigger;
CREATE TRIGGER gc_track_deleted_manifests_trigger AFTER DELETE ON manifests
WHEN OLD.configuration_blob_id IS NOT NULL
BEGIN
    DELETE FROM gc_blobs_configurations WHERE blob_id = OLD.configuration_blob_id AND manifest_id = OLD.id;
    INSERT INTO gc_enqueue_blob (digest, event, together)
    VALUES ((SELECT b.digest FROM blobs b WHERE b.id = OLD.configuration_blob_id), 'manifest_delete', OLD.id);
END;
