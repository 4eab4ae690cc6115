-- Bodies of some kinds are sealed with keys that are not in the database. See
-- docs/spec/sealing.md.

CREATE TABLE seal_keys (
    -- The keys that may have sealed a body. A server without one of them is
    -- refused while a body needs it.
    name        TEXT PRIMARY KEY,
    check_value BLOB NOT NULL,             -- a known text, sealed with the key
    sealing     INTEGER NOT NULL DEFAULT 0 -- boolean: every replica seals with this one
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX seal_keys_sealing_idx ON seal_keys (sealing) WHERE sealing = 1;

CREATE TABLE sealed_kinds (
    -- The kinds that may have sealed bodies.
    kind TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
