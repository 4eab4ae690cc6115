CREATE TABLE pull_days (
    -- What was pulled, for simulations of RetentionPolicies. Deleted by age.
    repository_id INTEGER NOT NULL CONSTRAINT pull_days_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    day           INTEGER NOT NULL, -- since 1970, UTC
    name          TEXT NOT NULL,    -- the tag; empty: by its digest
    digest        TEXT NOT NULL,    -- of the manifest
    pulls         INTEGER NOT NULL,
    pulled_at     INTEGER NOT NULL, -- Unix milliseconds; the last time, to the minute
    PRIMARY KEY (repository_id, day, name, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX pull_days_day_idx ON pull_days (day);

CREATE TABLE tag_days (
    -- What was pushed and deleted, likewise: the state of each tag before the first change of a day, and after the last.
    repository_id INTEGER NOT NULL CONSTRAINT tag_days_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    day           INTEGER NOT NULL, -- since 1970, UTC
    name          TEXT NOT NULL,
    was_digest    TEXT,             -- of the manifest; null: it is not known
    was_pushed_at INTEGER,          -- Unix milliseconds; null: the tag did not exist
    digest        TEXT,
    pushed_at     INTEGER,          -- null: the tag does not exist
    PRIMARY KEY (repository_id, day, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX tag_days_day_idx ON tag_days (day);

CREATE TRIGGER tags_inserted_day_trigger AFTER INSERT ON tags
BEGIN
    INSERT INTO tag_days (repository_id, day, name, digest, pushed_at)
    SELECT NEW.repository_id, NEW.updated_at / 86400000, NEW.name, m.digest, NEW.updated_at FROM manifests m WHERE m.id = NEW.manifest_id
    ON CONFLICT (repository_id, day, name) DO UPDATE SET digest = excluded.digest, pushed_at = excluded.pushed_at;
END;

CREATE TRIGGER tags_pushed_day_trigger AFTER UPDATE OF manifest_id, updated_at ON tags
WHEN NEW.updated_at > OLD.updated_at
BEGIN
    INSERT INTO tag_days (repository_id, day, name, was_digest, was_pushed_at, digest, pushed_at)
    SELECT NEW.repository_id, NEW.updated_at / 86400000, NEW.name, (SELECT w.digest FROM manifests w WHERE w.id = OLD.manifest_id), OLD.updated_at, m.digest, NEW.updated_at
    FROM manifests m WHERE m.id = NEW.manifest_id
    ON CONFLICT (repository_id, day, name) DO UPDATE SET digest = excluded.digest, pushed_at = excluded.pushed_at;
END;

CREATE TRIGGER tags_deleted_day_trigger AFTER DELETE ON tags
-- A tag that is deleted with its repository gets no row.
BEGIN
    INSERT INTO tag_days (repository_id, day, name, was_digest, was_pushed_at)
    SELECT r.id, unixepoch() / 86400, OLD.name, (SELECT w.digest FROM manifests w WHERE w.id = OLD.manifest_id), OLD.updated_at
    FROM repositories r WHERE r.id = OLD.repository_id
    ON CONFLICT (repository_id, day, name) DO UPDATE SET digest = NULL, pushed_at = NULL;
END;
