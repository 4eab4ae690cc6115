-- loses which objects were announced to expire, whose Events may come again: SELECT count(*) FROM expiry_reviews WHERE announced IS NOT NULL

ALTER TABLE expiry_reviews DROP COLUMN announced;
