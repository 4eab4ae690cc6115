CREATE TABLE backups (
    id          text PRIMARY KEY,
    target      text NOT NULL,
    began_at    bigint NOT NULL,
    hold_until  bigint NOT NULL,
    ended_at    bigint,
    restored_at bigint
);
COMMENT ON TABLE backups IS 'Backups of this database: those that run, the last that ended, and the one that the database was restored from.';
COMMENT ON COLUMN backups.target IS 'for people';
COMMENT ON COLUMN backups.began_at IS 'Unix milliseconds, as all times here';
COMMENT ON COLUMN backups.hold_until IS 'no bytes are unlinked before this time; the backup extends it while it runs';
COMMENT ON COLUMN backups.ended_at IS 'null: it runs, or was interrupted';
COMMENT ON COLUMN backups.restored_at IS 'null: the database was not restored from it';

CREATE VIEW backup_holds AS
    SELECT id FROM backups WHERE hold_until > gc_now();
COMMENT ON VIEW backup_holds IS 'The backups that need the bytes of the registry to stay.';
