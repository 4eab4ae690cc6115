CREATE INDEX changes_removed_idx
    -- The removals of a name: its versions are found from there.
    ON changes (kind, namespace, name, revision) WHERE type = 3;
