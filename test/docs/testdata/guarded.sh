# The deletion of a ConfigMap with three dependents waits to be confirmed.
. "$TESTDATA/owner.sh"
kubectl annotate namespace shop lifecycle.exeunt.dev/max-cascade=2
kubectl delete configmap owner -n shop --wait=false
