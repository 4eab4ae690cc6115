-- Whether a manifest uses a blob that is deleted is asked at once. NO ACTION, which
-- allows for a blob of the same digest that has come instead, looks for one first:
-- two of the six statements that PostgreSQL runs for each blob that goes.

ALTER TABLE layers DROP CONSTRAINT layers_digest_fkey,
    ADD CONSTRAINT layers_digest_fkey FOREIGN KEY (digest) REFERENCES blobs (digest) ON DELETE RESTRICT;
ALTER TABLE manifests DROP CONSTRAINT manifests_configuration_blob_digest_fkey,
    ADD CONSTRAINT manifests_configuration_blob_digest_fkey FOREIGN KEY (configuration_blob_digest) REFERENCES blobs (digest) ON DELETE RESTRICT;
