-- loses who confirmed archived deletions: SELECT count(*) FROM archive WHERE confirmer IS NOT NULL

ALTER TABLE archive DROP COLUMN confirmer;
