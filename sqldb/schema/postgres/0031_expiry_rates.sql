ALTER TABLE expiry_policies ADD COLUMN slot bigint NOT NULL DEFAULT 0;
ALTER TABLE expiry_policies ADD COLUMN in_slot bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN expiry_policies.slot IS 'the last slot of the policy''s rate in which it took an object, in slots since 1970';
COMMENT ON COLUMN expiry_policies.in_slot IS 'how many it took in that slot';

CREATE TABLE expiry_groups (
    policy text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    object bigint NOT NULL,
    PRIMARY KEY (policy, name, object)
);
COMMENT ON TABLE expiry_groups IS 'The objects of which a policy of expiry keeps the newest. The writer keeps the rows, and the policy''s walk writes those of the objects that were there before. Objects that are being deleted are not in them.';
COMMENT ON COLUMN expiry_groups.policy IS 'uid and generation';
COMMENT ON COLUMN expiry_groups.name IS 'kind, namespace and values of labels';
COMMENT ON COLUMN expiry_groups.object IS 'objects.id: the one that was created last is the newest';
