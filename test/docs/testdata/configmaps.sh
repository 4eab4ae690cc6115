# Twenty ConfigMaps, with the one that every namespace has.
. "$TESTDATA/lib.sh"
await 'kubectl get configmap kube-root-ca.crt'
for n in $(seq 19); do
  echo '---'
  echo '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"filler-'"$n"'"}}'
done | kubectl create -f - >/dev/null
