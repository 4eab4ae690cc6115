DROP TRIGGER image_uses_removed_trigger;
DROP TABLE image_uses;
