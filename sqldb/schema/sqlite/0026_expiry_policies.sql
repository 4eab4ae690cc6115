ALTER TABLE revision ADD COLUMN policies INTEGER NOT NULL DEFAULT 0; -- revision of the last write of an ExpiryPolicy or ClusterExpiryPolicy

CREATE TABLE expiry_policy_reviews (
    -- ExpiryPolicies and ClusterExpiryPolicies that were written, by uid: see package review for the columns.
    -- The review of a new state of a policy enqueues the objects that it selects, and writes its status.
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
CREATE INDEX expiry_policy_reviews_review_after_idx ON expiry_policy_reviews (review_after);

CREATE TABLE expiry_policies (
    -- What the server knows about each ExpiryPolicy and ClusterExpiryPolicy besides the object.
    uid       TEXT PRIMARY KEY,
    state     TEXT NOT NULL,              -- the generation and the annotation that the row is about
    place     TEXT NOT NULL DEFAULT '',   -- the last object that was enqueued: resource, namespace and name, with spaces between
    walked_at INTEGER,                    -- when the last object was; null: not yet. Before, the policy takes nothing
    scope     INTEGER NOT NULL DEFAULT 0, -- how many objects of its resources there were
    selected  INTEGER NOT NULL DEFAULT 0, -- of them selected
    due       INTEGER NOT NULL DEFAULT 0, -- of them due
    day       INTEGER NOT NULL DEFAULT 0, -- the last day on which it took an object, in days since 1970
    today     INTEGER NOT NULL DEFAULT 0, -- how many it took on that day
    taken     INTEGER NOT NULL DEFAULT 0, -- how many it took
    taken_at  INTEGER,
    waits     INTEGER NOT NULL DEFAULT 0  -- 1: it has reached what it may take without a confirmation
) STRICT;
