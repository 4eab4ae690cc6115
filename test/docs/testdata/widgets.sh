kubectl apply -f examples/widget/definition.yaml
kubectl wait --for=condition=Established crd/widgets.example.dev
kubectl apply -f examples/widget/widget.yaml
