# The old server and the new one are the same here.
. "$TESTDATA/widgets.sh"
