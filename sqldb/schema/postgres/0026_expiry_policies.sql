ALTER TABLE revision ADD COLUMN policies bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN revision.policies IS 'revision of the last write of an ExpiryPolicy or ClusterExpiryPolicy';

CREATE TABLE expiry_policy_reviews (
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
COMMENT ON TABLE expiry_policy_reviews IS 'ExpiryPolicies and ClusterExpiryPolicies that were written, by uid: see package review for the columns. The review of a new state of a policy enqueues the objects that it selects, and writes its status.';
CREATE INDEX expiry_policy_reviews_review_after_idx ON expiry_policy_reviews (review_after);

CREATE TABLE expiry_policies (
    uid       text COLLATE "C" PRIMARY KEY,
    state     text NOT NULL,
    place     text NOT NULL DEFAULT '',
    walked_at bigint,
    scope     bigint NOT NULL DEFAULT 0,
    selected  bigint NOT NULL DEFAULT 0,
    due       bigint NOT NULL DEFAULT 0,
    day       bigint NOT NULL DEFAULT 0,
    today     bigint NOT NULL DEFAULT 0,
    taken     bigint NOT NULL DEFAULT 0,
    taken_at  bigint,
    waits     bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE expiry_policies IS 'What the server knows about each ExpiryPolicy and ClusterExpiryPolicy besides the object.';
COMMENT ON COLUMN expiry_policies.state IS 'the generation and the annotation that the row is about';
COMMENT ON COLUMN expiry_policies.place IS 'the last object that was enqueued: resource, namespace and name, with spaces between';
COMMENT ON COLUMN expiry_policies.walked_at IS 'when the last object was; null: not yet. Before, the policy takes nothing';
COMMENT ON COLUMN expiry_policies.scope IS 'how many objects of its resources there were';
COMMENT ON COLUMN expiry_policies.selected IS 'of them selected';
COMMENT ON COLUMN expiry_policies.due IS 'of them due';
COMMENT ON COLUMN expiry_policies.day IS 'the last day on which it took an object, in days since 1970';
COMMENT ON COLUMN expiry_policies.today IS 'how many it took on that day';
COMMENT ON COLUMN expiry_policies.taken IS 'how many it took';
COMMENT ON COLUMN expiry_policies.waits IS '1: it has reached what it may take without a confirmation';
