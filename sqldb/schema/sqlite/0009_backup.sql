CREATE TABLE backups (
    -- Backups of this database: those that run, the last that ended, and the one that
    -- the database was restored from.
    id          TEXT PRIMARY KEY,
    target      TEXT NOT NULL,    -- for people
    began_at    INTEGER NOT NULL, -- Unix milliseconds, as all times here
    hold_until  INTEGER NOT NULL, -- no bytes are unlinked before this time; the backup extends it while it runs
    ended_at    INTEGER,          -- null: it runs, or was interrupted
    restored_at INTEGER           -- null: the database was not restored from it
) STRICT;

CREATE VIEW backup_holds AS
    -- The backups that need the bytes of the registry to stay.
    SELECT id FROM backups WHERE hold_until > CAST(unixepoch('subsec') * 1000 AS INTEGER);
