-- loses how many objects each policy of expiry took in the current minute, hour or day: SELECT count(*) FROM expiry_policies

ALTER TABLE expiry_policies DROP COLUMN slot;
ALTER TABLE expiry_policies DROP COLUMN in_slot;
DROP TABLE expiry_groups;
