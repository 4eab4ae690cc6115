# The deployment web and what it owned are gone.
. "$TESTDATA/shop.sh"
kubectl delete deployment web -n shop
kubectl wait --for=delete pod/web-1-1 -n shop --timeout=60s
