-- The id that a database shares with its blob store, so that a server that is
-- started with another's blob store notices.

CREATE TABLE data_id (
    -- One row, made at the first start with a registry. stored: the blob store
    -- was seen to have the id. Before that the store may have none yet.
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    id     TEXT NOT NULL,
    stored INTEGER NOT NULL DEFAULT 0 -- boolean
) STRICT;
