CREATE TABLE history (
    -- Earlier versions of objects, which compaction moves here from changes. A row has several versions of one object, one after the other.
    id        INTEGER PRIMARY KEY,
    object    INTEGER NOT NULL, -- objects.id
    uid       TEXT NOT NULL,
    kind      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    first     INTEGER NOT NULL, -- revision of the oldest version
    until     INTEGER NOT NULL, -- the revision that replaced or removed the newest version
    ended_at  INTEGER NOT NULL, -- when that was; Unix milliseconds
    open      INTEGER NOT NULL, -- boolean: the next version of the object is added to this row
    versions  INTEGER NOT NULL,
    size      INTEGER NOT NULL, -- bytes of body
    body      BLOB NOT NULL     -- the versions, compressed together: store/history. Of a sealed kind: sealed
) STRICT;
CREATE UNIQUE INDEX history_key_idx ON history (kind, namespace, name, first, until);
CREATE UNIQUE INDEX history_open_idx ON history (object) WHERE open = 1;
CREATE INDEX history_uid_idx ON history (uid);
CREATE INDEX history_namespace_idx
    -- What leaves first.
    ON history (namespace, ended_at, id);

CREATE TABLE history_bounds (
    -- What the history does not have any more, and how much it has.
    kind      TEXT NOT NULL,              -- empty: all
    namespace TEXT NOT NULL,              -- '*': all
    revision  INTEGER NOT NULL,           -- states of these objects before this revision may be incomplete
    bytes     INTEGER NOT NULL DEFAULT 0, -- of the rows of history, for all kinds of one namespace
    PRIMARY KEY (kind, namespace)
) STRICT, WITHOUT ROWID;
INSERT INTO history_bounds (kind, namespace, revision) SELECT '', '*', current FROM revision;

CREATE TABLE history_times (
    -- The last revision of each second in which something changed, up to revision.moved.
    at       INTEGER PRIMARY KEY, -- Unix seconds
    revision INTEGER NOT NULL
) STRICT;
