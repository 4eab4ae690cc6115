# A ConfigMap that owns three others, in the namespace of $in.
in=${in:-shop}
. "$TESTDATA/lib.sh"
wipe
kubectl create namespace "$in"
kubectl create configmap owner -n "$in"
owner=$(kubectl get configmap owner -n "$in" -o 'jsonpath={.metadata.uid}')
for n in $(seq "${dependents:-3}"); do
  cat <<END
---
apiVersion: v1
kind: ConfigMap
metadata: {name: owned-$n, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: $owner}]}
END
done | kubectl create -n "$in" -f - >/dev/null
unset in dependents
