CREATE TABLE restores (
    name       text COLLATE "C" PRIMARY KEY,
    requester  text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    ended_at   bigint,
    state      text NOT NULL
);
COMMENT ON TABLE restores IS 'Restores that clients asked for: package deletion/archive.';
COMMENT ON COLUMN restores.requester IS 'the name of the user whose rights it has';
COMMENT ON COLUMN restores.created_at IS 'Unix milliseconds';
COMMENT ON COLUMN restores.ended_at IS 'null: it goes on';
COMMENT ON COLUMN restores.state IS 'JSON: what is asked for, by whom, and the results so far';
CREATE INDEX restores_requester_idx ON restores (requester, created_at);

CREATE TABLE restore_reviews (
    name         text COLLATE "C" PRIMARY KEY,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint,
    traceparent  text
) WITH (fillfactor = 50);
COMMENT ON TABLE restore_reviews IS 'Restores that go on: see package review for the columns.';
CREATE INDEX restore_reviews_review_after_idx ON restore_reviews (review_after);
