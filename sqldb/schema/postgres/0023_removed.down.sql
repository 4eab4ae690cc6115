DROP INDEX changes_removed_idx;
