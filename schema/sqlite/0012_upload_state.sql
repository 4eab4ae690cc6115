-- What the blob store needs to go on with an upload after its first size bytes,
-- in whatever process: ids and tags of parts in S3. Null: the path is enough.
ALTER TABLE blob_uploads ADD COLUMN store_state BLOB;
