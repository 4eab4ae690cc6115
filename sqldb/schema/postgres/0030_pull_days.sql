CREATE TABLE pull_days (
    repository_id bigint NOT NULL CONSTRAINT pull_days_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    day           bigint NOT NULL,
    name          text COLLATE "C" NOT NULL,
    digest        text COLLATE "C" NOT NULL,
    pulls         bigint NOT NULL,
    pulled_at     bigint NOT NULL,
    PRIMARY KEY (repository_id, day, name, digest)
);
COMMENT ON TABLE pull_days IS 'What was pulled, for simulations of RetentionPolicies. Deleted by age.';
COMMENT ON COLUMN pull_days.day IS 'since 1970, UTC';
COMMENT ON COLUMN pull_days.name IS 'the tag; empty: by its digest';
COMMENT ON COLUMN pull_days.digest IS 'of the manifest';
COMMENT ON COLUMN pull_days.pulled_at IS 'Unix milliseconds; the last time, to the minute';
CREATE INDEX pull_days_day_idx ON pull_days (day);

CREATE TABLE tag_days (
    repository_id bigint NOT NULL CONSTRAINT tag_days_repository_id_fkey REFERENCES repositories (id) ON DELETE CASCADE,
    day           bigint NOT NULL,
    name          text COLLATE "C" NOT NULL,
    was_digest    text,
    was_pushed_at bigint,
    digest        text,
    pushed_at     bigint,
    PRIMARY KEY (repository_id, day, name)
);
COMMENT ON TABLE tag_days IS 'What was pushed and deleted, likewise: the state of each tag before the first change of a day, and after the last.';
COMMENT ON COLUMN tag_days.day IS 'since 1970, UTC';
COMMENT ON COLUMN tag_days.was_digest IS 'of the manifest; null: it is not known';
COMMENT ON COLUMN tag_days.was_pushed_at IS 'Unix milliseconds; null: the tag did not exist';
COMMENT ON COLUMN tag_days.pushed_at IS 'null: the tag does not exist';
CREATE INDEX tag_days_day_idx ON tag_days (day);

CREATE FUNCTION tags_day() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO tag_days (repository_id, day, name, was_digest, was_pushed_at)
        SELECT r.id, gc_now() / 86400000, OLD.name, (SELECT w.digest FROM manifests w WHERE w.id = OLD.manifest_id), OLD.updated_at
        FROM repositories r WHERE r.id = OLD.repository_id
        ON CONFLICT (repository_id, day, name) DO UPDATE SET digest = NULL, pushed_at = NULL;
    ELSIF TG_OP = 'INSERT' THEN
        INSERT INTO tag_days (repository_id, day, name, digest, pushed_at)
        SELECT NEW.repository_id, NEW.updated_at / 86400000, NEW.name, m.digest, NEW.updated_at FROM manifests m WHERE m.id = NEW.manifest_id
        ON CONFLICT (repository_id, day, name) DO UPDATE SET digest = excluded.digest, pushed_at = excluded.pushed_at;
    ELSE
        INSERT INTO tag_days (repository_id, day, name, was_digest, was_pushed_at, digest, pushed_at)
        SELECT NEW.repository_id, NEW.updated_at / 86400000, NEW.name, (SELECT w.digest FROM manifests w WHERE w.id = OLD.manifest_id), OLD.updated_at, m.digest, NEW.updated_at
        FROM manifests m WHERE m.id = NEW.manifest_id
        ON CONFLICT (repository_id, day, name) DO UPDATE SET digest = excluded.digest, pushed_at = excluded.pushed_at;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tags_day IS 'What happened to a tag on a day. A tag that is deleted with its repository gets no row.';
CREATE TRIGGER tags_changed_day_trigger AFTER INSERT OR DELETE ON tags FOR EACH ROW EXECUTE FUNCTION tags_day();
CREATE TRIGGER tags_pushed_day_trigger AFTER UPDATE OF manifest_id, updated_at ON tags FOR EACH ROW WHEN (NEW.updated_at > OLD.updated_at) EXECUTE FUNCTION tags_day();
