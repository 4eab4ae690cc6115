CREATE INDEX changes_removed_idx ON changes (kind, namespace, name, revision) WHERE type = 3;
