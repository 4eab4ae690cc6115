in=big
. "$TESTDATA/owner.sh"
