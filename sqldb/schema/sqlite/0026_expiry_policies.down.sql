-- loses what policies of expiry took: SELECT count(*) FROM expiry_policies

DROP TABLE expiry_policies;
DROP TABLE expiry_policy_reviews;
ALTER TABLE revision DROP COLUMN policies;
