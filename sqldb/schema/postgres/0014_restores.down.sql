-- loses restores that have not ended: SELECT count(*) FROM restores WHERE ended_at IS NULL

DROP TABLE restore_reviews;
DROP TABLE restores;
