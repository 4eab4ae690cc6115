-- The id that a database shares with its blob store, so that a server that is
-- started with another's blob store notices.

CREATE TABLE data_id (
    one    integer PRIMARY KEY CHECK (one = 1),
    id     text NOT NULL,
    stored boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE data_id IS 'The id that the database shares with its blob store: one row, made at the first start with a registry.';
COMMENT ON COLUMN data_id.stored IS 'the blob store was seen to have the id; before that it may have none yet';
