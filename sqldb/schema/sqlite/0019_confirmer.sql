ALTER TABLE objects ADD COLUMN deletion_confirmer TEXT /* of a DELETING object: the client that last confirmed its deletion while the guard held it; null: none did */;
