CREATE TABLE expiry_reviews (
    uid          text COLLATE "C" PRIMARY KEY,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint,
    traceparent  text
) WITH (fillfactor = 50);
COMMENT ON TABLE expiry_reviews IS 'Objects that expire, by uid, each due at the time at which it expires: see package review for the columns. A row may outlive its object: then its review deletes it.';
CREATE INDEX expiry_reviews_review_after_idx ON expiry_reviews (review_after);

-- Jobs that finished before have never been looked at.
INSERT INTO expiry_reviews (uid, review_after, review_count, event, created_at)
SELECT uid, 0, 0, 'upgrade', 0 FROM objects WHERE kind = 'jobs.batch';
