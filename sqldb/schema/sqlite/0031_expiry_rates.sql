ALTER TABLE expiry_policies ADD COLUMN slot INTEGER NOT NULL DEFAULT 0 /* the last slot of the policy's rate in which it took an object, in slots since 1970 */;
ALTER TABLE expiry_policies ADD COLUMN in_slot INTEGER NOT NULL DEFAULT 0 /* how many it took in that slot */;

CREATE TABLE expiry_groups (
    -- The objects of which a policy of expiry keeps the newest. The writer keeps the rows, and the policy's walk writes those of
    -- the objects that were there before. Objects that are being deleted are not in them.
    policy TEXT NOT NULL,    -- uid and generation
    name   TEXT NOT NULL,    -- kind, namespace and values of labels
    object INTEGER NOT NULL, -- objects.id: the one that was created last is the newest
    PRIMARY KEY (policy, name, object)
) STRICT, WITHOUT ROWID;
