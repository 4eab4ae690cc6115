ALTER TABLE backups ADD COLUMN progress text NOT NULL DEFAULT '';
COMMENT ON COLUMN backups.progress IS 'how far it is while it runs, as JSON; renewed with the hold';
