-- Small blobs live in the database: their bytes and their row are one
-- transaction, and need no file, no sync of their own and no unlinking.

ALTER TABLE blobs ADD COLUMN small boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN blobs.small IS 'the bytes are in small_blobs';

CREATE TABLE small_blobs (
    digest  text PRIMARY KEY REFERENCES blobs (digest) ON DELETE CASCADE,
    content bytea NOT NULL
);
COMMENT ON TABLE small_blobs IS 'The bytes of small blobs. They go with their row.';
-- Images and archives do not get smaller.
ALTER TABLE small_blobs ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE OR REPLACE FUNCTION gc_track_deleted_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gc_unlink_queue AS q (path, size, review_after, review_count, event, created_at)
    SELECT s.path, s.size, gc_unlink_after('blob_delete'), 0, 'blob_delete', gc_now()
    FROM (SELECT r.path, r.size FROM removed r WHERE NOT r.small ORDER BY r.path) AS s
    ON CONFLICT (path) DO UPDATE SET event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION gc_track_deleted_blobs IS 'Not in spec 2: the bytes of a blob whose row is gone are to go. Those of a small one went with it.';
