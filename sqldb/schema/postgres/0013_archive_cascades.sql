CREATE TABLE archive_cascades (
    id          text CONSTRAINT archive_cascades_pkey PRIMARY KEY,
    namespace   text NOT NULL DEFAULT '',
    objects     bigint NOT NULL DEFAULT 0,
    bytes       bigint NOT NULL DEFAULT 0,
    removed_at  bigint NOT NULL DEFAULT 0,
    purged      bigint NOT NULL DEFAULT 0,
    restored_at bigint,
    leaving     bigint
);
COMMENT ON TABLE archive_cascades IS 'The cascades that have rows in archive, with the sums of the rows up to archive_counted. A removal writes nothing here: expiry counts the new rows.';
COMMENT ON COLUMN archive_cascades.id IS 'archive.cascade';
COMMENT ON COLUMN archive_cascades.namespace IS 'of its root, whose share of the archive it uses; empty: cluster-scoped; a Namespace is in itself';
COMMENT ON COLUMN archive_cascades.removed_at IS 'of the last row; Unix milliseconds';
COMMENT ON COLUMN archive_cascades.purged IS 'how many of its objects a client purged from the archive';
COMMENT ON COLUMN archive_cascades.restored_at IS 'when an object of it was last restored; Unix milliseconds; null: none was';
COMMENT ON COLUMN archive_cascades.leaving IS 'its rows up to this revision are leaving: they are not listed, cannot be restored, and are deleted in steps; null: none are';
CREATE INDEX archive_cascades_namespace_idx ON archive_cascades (namespace, removed_at, id, bytes) WHERE leaving IS NULL;
COMMENT ON INDEX archive_cascades_namespace_idx IS 'What may leave, the oldest first, and the bytes of each namespace.';
CREATE INDEX archive_cascades_leaving_idx ON archive_cascades (id) WHERE leaving IS NOT NULL;

CREATE TABLE archive_spans (
    cascade   text NOT NULL CONSTRAINT archive_spans_cascade_fkey REFERENCES archive_cascades (id) ON DELETE CASCADE,
    namespace text NOT NULL,
    CONSTRAINT archive_spans_pkey PRIMARY KEY (cascade, namespace)
);
COMMENT ON TABLE archive_spans IS 'The other namespaces that objects of a cascade were in.';

CREATE TABLE archive_counted (
    one      integer CONSTRAINT archive_counted_pkey PRIMARY KEY CONSTRAINT archive_counted_one_check CHECK (one = 1),
    revision bigint NOT NULL
);
COMMENT ON TABLE archive_counted IS 'How far archive_cascades is: one row.';
COMMENT ON COLUMN archive_counted.revision IS 'the rows of archive up to this id are counted';
INSERT INTO archive_counted (one, revision) VALUES (1, 0);

-- Without the setting, a plan that was made while the table was small would read all of it later.
CREATE FUNCTION archive_cascades_follow_archive() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    UPDATE archive_cascades c SET objects = c.objects - g.objects, bytes = c.bytes - g.bytes
    FROM (SELECT cascade, count(*) AS objects, sum(size) AS bytes FROM gone WHERE id <= (SELECT revision FROM archive_counted) GROUP BY cascade) g
    WHERE c.id = g.cascade;
    DELETE FROM archive_cascades c USING (SELECT DISTINCT cascade FROM gone) g
    WHERE c.id = g.cascade AND c.objects = 0 AND c.leaving IS NULL
        AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.cascade = g.cascade AND a.cascade <> a.uid)
        AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.uid = g.cascade AND a.cascade = a.uid);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION archive_cascades_follow_archive IS 'Rows that leave are not counted any more. The last one takes its cascade with it.';
CREATE TRIGGER archive_cascades_follow_archive_trigger AFTER DELETE ON archive
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION archive_cascades_follow_archive();
