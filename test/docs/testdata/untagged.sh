crane delete "$REGISTRY/shop/web:v1"
