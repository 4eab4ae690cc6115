ALTER TABLE expiry_reviews ADD COLUMN announced bigint;
COMMENT ON COLUMN expiry_reviews.announced IS 'the time at which an Event said that the object expires, in Unix milliseconds';
