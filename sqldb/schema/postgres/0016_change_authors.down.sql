-- loses who made changes, and when: SELECT count(*) FROM changes WHERE at IS NOT NULL

ALTER TABLE changes DROP COLUMN author;
ALTER TABLE changes DROP COLUMN at;
