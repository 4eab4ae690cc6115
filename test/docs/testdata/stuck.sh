# The namespace shop is DELETING: a finalizer holds a ConfigMap, and its deployment waits for it.
. "$TESTDATA/shop.sh"
kubectl delete deployment web -n shop --cascade=foreground --wait=false
kubectl delete namespace shop --wait=false
await 'exeunt why ns/shop | grep -q "^2 objects to go first"'
