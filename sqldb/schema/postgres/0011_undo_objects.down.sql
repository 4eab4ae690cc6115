-- loses the state before their deletion of objects that are being deleted: SELECT count(*) FROM objects WHERE asked_body IS NOT NULL

ALTER TABLE objects DROP COLUMN asked_at;
ALTER TABLE objects DROP COLUMN asked_body;
ALTER TABLE objects DROP COLUMN own_cascade;
