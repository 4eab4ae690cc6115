# A deployment with a ReplicaSet, two pods, a ConfigMap that a finalizer holds, and one
# that it owns together with another owner.
. "$TESTDATA/lib.sh"
wipe
kubectl create namespace shop
kubectl create deployment web --image=nginx -n shop
kubectl create configmap shared -n shop
deployment="{apiVersion: apps/v1, kind: Deployment, name: web, blockOwnerDeletion: true, uid: $(uid deployment/web)}"
shared="{apiVersion: v1, kind: ConfigMap, name: shared, uid: $(uid configmap/shared)}"
kubectl create -n shop -f - <<END
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-1, ownerReferences: [$deployment]}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: nginx}]}
END
kubectl create -n shop --field-manager=backup-operator -f - <<END
apiVersion: v1
kind: ConfigMap
metadata: {name: web-state, ownerReferences: [$deployment], finalizers: [backup.example.com/snapshot]}
END
kubectl create -n shop -f - <<END
apiVersion: v1
kind: ConfigMap
metadata: {name: both, ownerReferences: [$deployment, $shared]}
END
for pod in web-1-1 web-1-2; do
  kubectl create -n shop -f - <<END
apiVersion: v1
kind: Pod
metadata:
  name: $pod
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: $(uid replicaset/web-1)}]
spec: {containers: [{name: web, image: nginx}]}
END
done
image
