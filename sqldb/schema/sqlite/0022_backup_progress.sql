ALTER TABLE backups ADD COLUMN progress TEXT NOT NULL DEFAULT '' /* how far it is while it runs, as JSON; renewed with the hold */;
