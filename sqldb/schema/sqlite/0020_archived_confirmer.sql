ALTER TABLE archive ADD COLUMN confirmer TEXT /* as objects.deletion_confirmer */;
