-- Events leave by themselves.

CREATE TABLE object_expiries (
    -- When objects are to be removed without a request. A row may outlive its
    -- object: then it goes when it is due.
    object     INTEGER PRIMARY KEY, -- objects.id
    expires_at INTEGER NOT NULL     -- Unix milliseconds
) STRICT;
CREATE INDEX object_expiries_expires_at_idx ON object_expiries (expires_at);

-- Events that are here already have the default time from now on.
INSERT INTO object_expiries (object, expires_at)
SELECT id, (unixepoch() + 3600) * 1000 FROM objects WHERE kind = 'events';
