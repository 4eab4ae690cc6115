-- Blobs are found by their digest through a view: on SQLite it is more than the
-- table. Here entries of an index stay until VACUUM as it is, and there is nothing
-- else to do. See docs/decisions/0012.

CREATE VIEW blobs_by_digest AS SELECT id, digest, path, size, small, damaged FROM blobs;
