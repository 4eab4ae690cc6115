-- A blob whose bytes are lost or damaged is marked, so that clients upload it
-- again, and what they upload takes its place.

-- 1: found to be so by exeunt registry verify --repair: not handed out, and
-- replaced by the next upload
ALTER TABLE blobs ADD COLUMN damaged INTEGER NOT NULL DEFAULT 0;

-- As before, but that a small blob has no bytes to unlink.
DROP TRIGGER gc_track_moved_blobs_trigger;
CREATE TRIGGER gc_track_moved_blobs_trigger AFTER UPDATE ON blobs WHEN OLD.path <> NEW.path AND OLD.small = 0
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'blob_delete');
END;

-- A small blob was damaged, and came back as one that is in the blob store.
CREATE TRIGGER blobs_leave_database_trigger AFTER UPDATE ON blobs WHEN OLD.small = 1 AND NEW.small = 0
BEGIN
    DELETE FROM small_blobs WHERE digest = OLD.digest;
END;
