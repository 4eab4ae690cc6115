# What the scripts beside this one share.

# wipe removes what a page before, or an earlier part of this page, has made.
wipe() {
  kubectl patch configmap web-state -n shop --type=merge -p '{"metadata":{"finalizers":null}}' 2>/dev/null || true
  kubectl annotate namespace shop big lifecycle.exeunt.dev/max-cascade- 2>/dev/null || true
  kubectl delete namespace shop big --ignore-not-found
}

# await COMMAND repeats a command until it succeeds, for a minute and more.
await() {
  for _ in $(seq 200); do
    if eval "$1"; then return; fi
    sleep 0.3
  done
  echo "still not true after a minute: $1"
  return 1
}

# uid KIND/NAME prints the uid of an object in namespace shop.
uid() { kubectl get "$1" -n shop -o 'jsonpath={.metadata.uid}'; }

# image pushes shop/web:v1, and waits for its Repository.
image() {
  echo layer >layer
  tar cf layer.tar layer
  crane append -f layer.tar -t "$REGISTRY/shop/web:v1"
  await 'kubectl get repository web -n shop | grep -E "^web +[0-9]+ +1 "'
}
