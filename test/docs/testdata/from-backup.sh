kubectl create namespace backed-up
kubectl create configmap settings -n backed-up --from-literal key=value
kubectl create secret generic password -n backed-up --from-literal key=value
kubectl wait --for=create serviceaccount/default -n backed-up
exeunt backup create "$BACKUP" --data "$DATA"
kubectl delete configmap/settings secret/password -n backed-up
