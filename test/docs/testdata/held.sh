# A ConfigMap is DELETING, and a finalizer holds it.
. "$TESTDATA/lib.sh"
wipe
kubectl create namespace shop
kubectl create -n shop --field-manager=backup-operator -f - <<END
apiVersion: v1
kind: ConfigMap
metadata: {name: web-state, finalizers: [backup.example.com/snapshot]}
END
kubectl delete configmap web-state -n shop --wait=false
