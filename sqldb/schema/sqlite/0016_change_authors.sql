ALTER TABLE changes ADD COLUMN at INTEGER;  -- when the change was made, never before an earlier one; Unix milliseconds; null: by a version that did not record it
ALTER TABLE changes ADD COLUMN author TEXT; -- user, client, verb and request id, a line each; null: the server itself, or not recorded
