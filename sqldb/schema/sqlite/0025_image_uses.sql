CREATE TABLE image_uses (
    -- The images that workloads name. A row is written with the object, and stays while the archive or the history has
    -- a version that names the image.
    path      TEXT NOT NULL,    -- without the host of the registry
    reference TEXT NOT NULL,    -- a tag or a digest
    uid       TEXT NOT NULL,    -- of the object
    kind      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    left_at   INTEGER,          -- when it ended to name the image; Unix milliseconds; null: it names it
    PRIMARY KEY (path, reference, uid)
) STRICT, WITHOUT ROWID;

CREATE INDEX image_uses_uid_idx ON image_uses (uid);

CREATE INDEX image_uses_left_at_idx ON image_uses (left_at) WHERE left_at IS NOT NULL;

CREATE TRIGGER image_uses_removed_trigger AFTER DELETE ON objects
WHEN OLD.kind IN ('controllerrevisions.apps', 'cronjobs.batch', 'daemonsets.apps', 'deployments.apps', 'jobs.batch', 'pods', 'podtemplates',
    'replicasets.apps', 'replicationcontrollers', 'statefulsets.apps')
BEGIN
    UPDATE image_uses SET left_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) WHERE uid = OLD.uid AND left_at IS NULL;
END;
