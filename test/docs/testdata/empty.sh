. "$TESTDATA/lib.sh"
wipe
