. "$TESTDATA/widgets.sh"
kubectl delete crd widgets.example.dev
