-- loses which cascades are leaving the archive: SELECT count(*) FROM archive_cascades WHERE leaving IS NOT NULL

DROP TRIGGER archive_cascades_follow_archive_trigger;
DROP TABLE archive_counted;
DROP TABLE archive_spans;
DROP TABLE archive_cascades;
