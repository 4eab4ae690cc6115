-- Bodies of some kinds are sealed with keys that are not in the database. See
-- docs/spec/sealing.md.

CREATE TABLE seal_keys (
    name        text COLLATE "C" PRIMARY KEY,
    check_value bytea NOT NULL,
    sealing     boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE seal_keys IS 'The keys that may have sealed a body. A server without one of them is refused while a body needs it.';
COMMENT ON COLUMN seal_keys.check_value IS 'a known text, sealed with the key';
COMMENT ON COLUMN seal_keys.sealing IS 'every replica seals with this one';
CREATE UNIQUE INDEX seal_keys_sealing_idx ON seal_keys (sealing) WHERE sealing;

CREATE TABLE sealed_kinds (
    kind text COLLATE "C" PRIMARY KEY
);
COMMENT ON TABLE sealed_kinds IS 'The kinds that may have sealed bodies.';
