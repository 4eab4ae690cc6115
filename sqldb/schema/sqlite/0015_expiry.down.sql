-- loses when objects expire: SELECT count(*) FROM expiry_reviews

DROP TABLE expiry_reviews;
