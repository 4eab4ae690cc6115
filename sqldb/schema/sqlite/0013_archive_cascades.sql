-- A cascade is one unit: it leaves the archive whole.
CREATE TABLE archive_cascades (
    -- The cascades that have rows in archive, with the sums of the rows up to
    -- archive_counted. A removal writes nothing here: expiry counts the new rows.
    id          TEXT PRIMARY KEY,            -- archive.cascade
    namespace   TEXT NOT NULL DEFAULT '',    -- of its root, whose share of the archive it uses; empty: cluster-scoped; a Namespace is in itself
    objects     INTEGER NOT NULL DEFAULT 0,
    bytes       INTEGER NOT NULL DEFAULT 0,
    removed_at  INTEGER NOT NULL DEFAULT 0,  -- of the last row; Unix milliseconds
    purged      INTEGER NOT NULL DEFAULT 0,  -- how many of its objects a client purged from the archive
    restored_at INTEGER,                     -- when an object of it was last restored; Unix milliseconds; null: none was
    leaving     INTEGER                      -- its rows up to this revision are leaving: they are not listed, cannot be restored, and are deleted in steps; null: none are
) STRICT, WITHOUT ROWID;
CREATE INDEX archive_cascades_namespace_idx
    -- What may leave, the oldest first, and the bytes of each namespace. SQLite reads leaving too: without it the index does not cover the sums.
    ON archive_cascades (namespace, removed_at, id, bytes, leaving) WHERE leaving IS NULL;
CREATE INDEX archive_cascades_leaving_idx ON archive_cascades (id) WHERE leaving IS NOT NULL;

CREATE TABLE archive_spans (
    -- The other namespaces that objects of a cascade were in.
    cascade   TEXT NOT NULL CONSTRAINT archive_spans_cascade_fkey REFERENCES archive_cascades (id) ON DELETE CASCADE,
    namespace TEXT NOT NULL,
    PRIMARY KEY (cascade, namespace)
) STRICT, WITHOUT ROWID;

CREATE TABLE archive_counted (
    -- How far archive_cascades is: one row.
    one      INTEGER PRIMARY KEY CONSTRAINT archive_counted_one_check CHECK (one = 1),
    revision INTEGER NOT NULL -- the rows of archive up to this id are counted
) STRICT;
INSERT INTO archive_counted (one, revision) VALUES (1, 0);

CREATE TRIGGER archive_cascades_follow_archive_trigger AFTER DELETE ON archive
-- A row that leaves is not counted any more. The last one takes its cascade with it.
BEGIN
    UPDATE archive_cascades SET objects = objects - 1, bytes = bytes - OLD.size
    WHERE id = OLD.cascade AND OLD.id <= (SELECT revision FROM archive_counted);
    DELETE FROM archive_cascades
    WHERE id = OLD.cascade AND objects = 0 AND leaving IS NULL
        AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.cascade = OLD.cascade AND a.cascade <> a.uid)
        AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.uid = OLD.cascade AND a.cascade = a.uid);
END;
