# A cascade of 600 objects, whose Event says how far it is.
dependents=599
. "$TESTDATA/owner.sh"
kubectl delete configmap owner -n shop
await 'kubectl -n shop events --for configmap/owner | grep " 0 remaining"'
