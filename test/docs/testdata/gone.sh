. "$TESTDATA/content.sh"
kubectl delete namespace shop
