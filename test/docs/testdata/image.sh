. "$TESTDATA/lib.sh"
wipe
image
