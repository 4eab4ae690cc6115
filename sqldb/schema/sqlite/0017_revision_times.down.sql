-- loses the time of the newest change: SELECT count(*) FROM revision WHERE changed_at > 0

ALTER TABLE revision DROP COLUMN moved;
ALTER TABLE revision DROP COLUMN changed_at;
