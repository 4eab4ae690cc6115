DROP TRIGGER repositories_quota_trigger;
DROP VIEW registry_limits;
DROP TRIGGER registry_quotas_removed_trigger;
DROP TRIGGER registry_quotas_collect_trigger;
DROP TRIGGER registry_quotas_unlink_trigger;
DROP TRIGGER registry_quotas_link_trigger;
DROP TABLE registry_quotas;
