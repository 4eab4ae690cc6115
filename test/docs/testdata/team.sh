# The page goes on in a namespace of its own.
kubectl create namespace team
kubectl config set-context --current --namespace=team
