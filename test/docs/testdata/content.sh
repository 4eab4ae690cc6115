# The namespace shop with two ConfigMaps, one of which the other owns, and an image.
. "$TESTDATA/lib.sh"
wipe
kubectl create namespace shop
kubectl create configmap shared -n shop
kubectl create -n shop -f - <<END
apiVersion: v1
kind: ConfigMap
metadata:
  name: both
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: shared, uid: $(uid configmap/shared)}]
END
image
