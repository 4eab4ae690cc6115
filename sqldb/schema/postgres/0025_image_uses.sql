CREATE TABLE image_uses (
    path      text COLLATE "C" NOT NULL,
    reference text COLLATE "C" NOT NULL,
    uid       text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    left_at   bigint,
    CONSTRAINT image_uses_pkey PRIMARY KEY (path, reference, uid)
);
COMMENT ON TABLE image_uses IS 'The images that workloads name. A row is written with the object, and stays while the archive or the history has a version that names the image.';
COMMENT ON COLUMN image_uses.path IS 'without the host of the registry';
COMMENT ON COLUMN image_uses.reference IS 'a tag or a digest';
COMMENT ON COLUMN image_uses.uid IS 'of the object';
COMMENT ON COLUMN image_uses.left_at IS 'when it ended to name the image; Unix milliseconds; null: it names it';
CREATE INDEX image_uses_uid_idx ON image_uses (uid);
CREATE INDEX image_uses_left_at_idx ON image_uses (left_at) WHERE left_at IS NOT NULL;

CREATE FUNCTION image_uses_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE image_uses SET left_at = gc_now() WHERE uid = OLD.uid AND left_at IS NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION image_uses_removed IS 'What a removed object names is in use until the archive and the history forget it.';
CREATE TRIGGER image_uses_removed_trigger AFTER DELETE ON objects FOR EACH ROW
    WHEN (OLD.kind IN ('controllerrevisions.apps', 'cronjobs.batch', 'daemonsets.apps', 'deployments.apps', 'jobs.batch', 'pods', 'podtemplates',
        'replicasets.apps', 'replicationcontrollers', 'statefulsets.apps')) EXECUTE FUNCTION image_uses_removed();
