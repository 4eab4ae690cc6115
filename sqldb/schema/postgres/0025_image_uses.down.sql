DROP TRIGGER image_uses_removed_trigger ON objects;
DROP FUNCTION image_uses_removed;
DROP TABLE image_uses;
