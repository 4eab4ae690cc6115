kubectl delete service web
kubectl create deployment web --image=nginx
