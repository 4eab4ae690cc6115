-- A blob whose bytes are lost or damaged is marked, so that clients upload it
-- again, and what they upload takes its place.

ALTER TABLE blobs ADD COLUMN damaged boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN blobs.damaged IS 'found to be so by exeunt registry verify --repair: not handed out, and replaced by the next upload';

-- As before, but that a small blob has no bytes to unlink.
DROP TRIGGER gc_track_moved_blobs_trigger ON blobs;
CREATE TRIGGER gc_track_moved_blobs_trigger AFTER UPDATE ON blobs FOR EACH ROW
WHEN (OLD.path <> NEW.path AND NOT OLD.small) EXECUTE FUNCTION gc_track_moved_blobs();

CREATE FUNCTION blobs_leave_database() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM small_blobs WHERE digest = OLD.digest;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION blobs_leave_database IS 'A small blob was damaged, and came back as one that is in the blob store.';
CREATE TRIGGER blobs_leave_database_trigger AFTER UPDATE ON blobs FOR EACH ROW
WHEN (OLD.small AND NOT NEW.small) EXECUTE FUNCTION blobs_leave_database();
