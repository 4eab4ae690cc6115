. "$TESTDATA/lib.sh"
wipe
kubectl create namespace shop
