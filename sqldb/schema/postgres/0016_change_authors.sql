ALTER TABLE changes ADD COLUMN at bigint, ADD COLUMN author text COLLATE "C";
COMMENT ON COLUMN changes.at IS 'when the change was made, never before an earlier one; Unix milliseconds; null: by a version that did not record it';
COMMENT ON COLUMN changes.author IS 'user, client, verb and request id, a line each; null: the server itself, or not recorded';
