CREATE TABLE history (
    id        bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT history_pkey PRIMARY KEY,
    object    bigint NOT NULL,
    uid       text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    first     bigint NOT NULL,
    until     bigint NOT NULL,
    ended_at  bigint NOT NULL,
    open      integer NOT NULL,
    versions  bigint NOT NULL,
    size      bigint NOT NULL,
    body      bytea NOT NULL
);
ALTER TABLE history ALTER COLUMN body SET STORAGE EXTERNAL;
COMMENT ON TABLE history IS 'Earlier versions of objects, which compaction moves here from changes. A row has several versions of one object, one after the other.';
COMMENT ON COLUMN history.object IS 'objects.id';
COMMENT ON COLUMN history.first IS 'revision of the oldest version';
COMMENT ON COLUMN history.until IS 'the revision that replaced or removed the newest version';
COMMENT ON COLUMN history.ended_at IS 'when that was; Unix milliseconds';
COMMENT ON COLUMN history.open IS 'boolean: the next version of the object is added to this row';
COMMENT ON COLUMN history.size IS 'bytes of body';
COMMENT ON COLUMN history.body IS 'the versions, compressed together: store/history. Of a sealed kind: sealed';
CREATE UNIQUE INDEX history_key_idx ON history (kind, namespace, name, first, until);
CREATE UNIQUE INDEX history_open_idx ON history (object) WHERE open = 1;
CREATE INDEX history_uid_idx ON history (uid);
CREATE INDEX history_namespace_idx ON history (namespace, ended_at, id);
COMMENT ON INDEX history_namespace_idx IS 'What leaves first.';

CREATE TABLE history_bounds (
    kind      text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    revision  bigint NOT NULL,
    bytes     bigint NOT NULL DEFAULT 0,
    CONSTRAINT history_bounds_pkey PRIMARY KEY (kind, namespace)
);
COMMENT ON TABLE history_bounds IS 'What the history does not have any more, and how much it has.';
COMMENT ON COLUMN history_bounds.kind IS 'empty: all';
COMMENT ON COLUMN history_bounds.namespace IS '''*'': all';
COMMENT ON COLUMN history_bounds.revision IS 'states of these objects before this revision may be incomplete';
COMMENT ON COLUMN history_bounds.bytes IS 'of the rows of history, for all kinds of one namespace';
INSERT INTO history_bounds (kind, namespace, revision) SELECT '', '*', current FROM revision;

CREATE TABLE history_times (
    at       bigint CONSTRAINT history_times_pkey PRIMARY KEY,
    revision bigint NOT NULL
);
COMMENT ON TABLE history_times IS 'The last revision of each second in which something changed, up to revision.moved.';
