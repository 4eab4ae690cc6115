CREATE TABLE expiry_reviews (
    -- Objects that expire, by uid, each due at the time at which it expires: see package review for the columns.
    -- A row may outlive its object: then its review deletes it.
    uid          TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL,
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER,
    traceparent  TEXT
) STRICT;
CREATE INDEX expiry_reviews_review_after_idx ON expiry_reviews (review_after);

-- Jobs that finished before have never been looked at.
INSERT INTO expiry_reviews (uid, review_after, review_count, event, created_at)
SELECT uid, 0, 0, 'upgrade', 0 FROM objects WHERE kind = 'jobs.batch';
