CREATE TABLE restores (
    -- Restores that clients asked for: package deletion/archive.
    name       TEXT PRIMARY KEY,
    requester  TEXT NOT NULL,    -- the name of the user whose rights it has
    created_at INTEGER NOT NULL, -- Unix milliseconds
    ended_at   INTEGER,          -- null: it goes on
    state      TEXT NOT NULL     -- JSON: what is asked for, by whom, and the results so far
) STRICT;
CREATE INDEX restores_requester_idx ON restores (requester, created_at);

CREATE TABLE restore_reviews (
    -- Restores that go on: see package review for the columns.
    name         TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL,
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER,
    traceparent  TEXT
) STRICT;
CREATE INDEX restore_reviews_review_after_idx ON restore_reviews (review_after);
