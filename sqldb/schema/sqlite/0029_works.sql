CREATE TABLE works (
    -- What takes long in other processes, while it goes on: see package underway.
    id           TEXT PRIMARY KEY,
    what         TEXT NOT NULL,
    requested_by TEXT NOT NULL,    -- the user; empty: a command on the server's own data
    began_at     INTEGER NOT NULL,
    until        INTEGER NOT NULL, -- when the row counts no more, unless its process renews it
    far          TEXT NOT NULL,    -- how far it is, for people
    done         INTEGER NOT NULL,
    total        INTEGER NOT NULL  -- 0: not known
) STRICT;
