-- loses how far a running backup is

ALTER TABLE backups DROP COLUMN progress;
