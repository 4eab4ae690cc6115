-- Small blobs live in the database: their bytes and their row are one
-- transaction, and need no file, no sync of their own and no unlinking.

ALTER TABLE blobs ADD COLUMN small INTEGER NOT NULL DEFAULT 0; -- 1: the bytes are in small_blobs

CREATE TABLE small_blobs (
    -- The bytes of small blobs. They go with their row.
    digest  TEXT PRIMARY KEY REFERENCES blobs (digest) ON DELETE CASCADE,
    content BLOB NOT NULL
) STRICT;

-- As before, but that a small blob has no bytes to unlink.
DROP TRIGGER gc_track_deleted_blobs_trigger;
CREATE TRIGGER gc_track_deleted_blobs_trigger AFTER DELETE ON blobs WHEN OLD.small = 0
BEGIN
    INSERT INTO gc_enqueue_unlink (path, size, event) VALUES (OLD.path, OLD.size, 'blob_delete');
END;
