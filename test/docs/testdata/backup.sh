# A backup from before.
. "$TESTDATA/image.sh"
exeunt backup create "$BACKUP" --data "$DATA"
