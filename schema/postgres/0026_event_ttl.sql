-- Events leave by themselves.

CREATE TABLE object_expiries (
    object     bigint PRIMARY KEY,
    expires_at bigint NOT NULL
);
COMMENT ON TABLE object_expiries IS 'When objects are to be removed without a request. A row may outlive its object: then it goes when it is due.';
COMMENT ON COLUMN object_expiries.object IS 'objects.id';
COMMENT ON COLUMN object_expiries.expires_at IS 'Unix milliseconds';
CREATE INDEX object_expiries_expires_at_idx ON object_expiries (expires_at);

-- Events that are here already have the default time from now on.
INSERT INTO object_expiries (object, expires_at)
SELECT id, (extract(epoch FROM now())::bigint + 3600) * 1000 FROM objects WHERE kind = 'events';
